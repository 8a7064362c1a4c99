package apply

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

const (
	// maxCorrections is how often an object is corrected for the same intent in contestPeriod. After that another
	// client, which does not stop, wants it otherwise: without a pause both would write as fast as the API server
	// answers.
	maxCorrections = 10
	contestPeriod  = 2 * time.Minute
	// contestPause is how long a contested object is left as it is. It is shorter than the time after which a problem
	// is checked again.
	contestPause = 50 * time.Second
)

// reasonContested is the reason of the problem that another client keeps changing an object back.
const reasonContested = "Contested"

// contest is how often an object was corrected, for an intent.
type contest struct {
	hash        string
	corrections int
	// Before until, the object is not changed, because of err.
	until time.Time
	err   error
}

// inContest returns why an object is left as it is, or missing, for now.
func (e *Engine) inContest(in *intent) error {
	now := e.clock.Now()
	c, _ := e.contests.Get(in.key, now)
	if c.hash != in.hash {
		e.contests.Drop(in.key)
		return nil
	}
	if now.Before(c.until) {
		return c.err
	}
	return nil
}

// count counts that an object was corrected. what says what another client had done, and who which one.
func (e *Engine) count(in *intent, what, who string) {
	now := e.clock.Now()
	c, _ := e.contests.Get(in.key, now)
	c.hash, c.corrections = in.hash, c.corrections+1
	if c.corrections >= maxCorrections {
		c.until, c.err = now.Add(contestPause), problem.Newf(reasonContested,
			"%s is %s by another client%s each time that the operator has corrected it, so the operator corrects it once a minute only; have that client leave it alone",
			in.ref, what, who)
	}
	e.contests.Put(in.key, c, now, contestPeriod)
}

// correct updates an object, and counts it if the object had what the intent says before, and has it again. A contested
// one is left as it is for some time.
func (e *Engine) correct(ctx context.Context, live client.Object, in *intent) error {
	if err := e.inContest(in); err != nil {
		return err
	}
	e.mu.Lock()
	before := e.verified[in.key]
	e.mu.Unlock()
	if before.uid != live.GetUID() || before.hash != in.hash {
		return e.update(ctx, live, in)
	}
	who := ""
	if c, _ := e.contests.Get(in.key, e.clock.Now()); c.corrections+1 >= maxCorrections {
		who = e.lastManager(ctx, in) // who applies takes over the fields of others
	}
	if err := e.update(ctx, live, in); err != nil {
		return err
	}
	e.mu.Lock()
	changed := e.verified[in.key].version != live.GetResourceVersion()
	e.mu.Unlock()
	if changed {
		e.count(in, "changed", who)
	}
	return nil
}

// countDeleted counts that an object has to be created again that was created from the same intent, and that the
// operator has not deleted.
func (e *Engine) countDeleted(in *intent) {
	e.mu.Lock()
	again := e.made[in.key].hash == in.hash
	e.mu.Unlock()
	if again {
		e.count(in, "deleted", "")
	}
}

// lastManager returns the field manager besides the operator that has changed an object last, as a part of a sentence.
func (e *Engine) lastManager(ctx context.Context, in *intent) string {
	there, err := e.read(ctx, e.live, in.object)
	if err != nil || there == nil {
		return ""
	}
	var last metav1.ManagedFieldsEntry
	for _, entry := range there.GetManagedFields() {
		if entry.Manager != ownership.Operator && entry.Subresource == "" && (last.Time == nil || entry.Time != nil && last.Time.Before(entry.Time)) {
			last = entry
		}
	}
	if last.Manager == "" {
		return ""
	}
	return fmt.Sprintf(" (field manager %q)", last.Manager)
}
