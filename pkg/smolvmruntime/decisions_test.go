package smolvmruntime

import (
	"context"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// TestEveryEnd decides all states that can be. Machines stop only if a DaemonSet that was seen is certainly gone or going.
func TestEveryEnd(t *testing.T) {
	decided := 0
	for _, asked := range []bool{true, false} {
		for _, known := range []string{"", "a"} {
			for _, found := range []string{"", "a", "b"} {
				for _, deleting := range []bool{true, false} {
					decided++
					got, why := decideEnd(daemonSet{asked: asked, known: uid(known), found: uid(found), deleting: deleting})
					want := machinesStay
					if asked && known != "" && (found == "" || deleting) {
						want = machinesStop
					}
					if got != want || why == "" {
						t.Errorf("asked %v, known %q, found %q, deleting %v: machines %s, %q", asked, known, found, deleting, got, why)
					}
				}
			}
		}
	}
	t.Logf("%d states are decided", decided)
}

func TestEndsBySentence(t *testing.T) {
	for sentence, test := range map[string]struct {
		seen daemonSet
		want ending
	}{
		"an update or a crash leaves machines alone":             {daemonSet{known: "a", asked: true, found: "a"}, machinesStay},
		"a silent API server leaves them alone":                  {daemonSet{known: "a"}, machinesStay},
		"a DaemonSet under another name was never seen":          {daemonSet{asked: true}, machinesStay},
		"one that was never seen and is deleted says nothing":    {daemonSet{asked: true, found: "a", deleting: true}, machinesStay},
		"one that was deleted and made again is wanted":          {daemonSet{known: "a", asked: true, found: "b"}, machinesStay},
		"a DaemonSet that is being deleted stops machines":       {daemonSet{known: "a", asked: true, found: "a", deleting: true}, machinesStop},
		"a DaemonSet that is gone stops machines":                {daemonSet{known: "a", asked: true}, machinesStop},
		"the one that was made again is being deleted, too: end": {daemonSet{known: "a", asked: true, found: "b", deleting: true}, machinesStop},
	} {
		if got, why := decideEnd(test.seen); got != test.want {
			t.Errorf("%s: machines %s, %q", sentence, got, why)
		}
	}
}

// TestEveryVerdict decides all kinds of owners and claims. The table is written out: what is not in it is foreign.
func TestEveryVerdict(t *testing.T) {
	owners := map[string]*api.Owner{
		"none": nil, "empty": {}, "ours": {Cluster: "c", Namespace: "n", Name: "x", UID: "u"},
		"of another cluster": {Cluster: "d", Namespace: "n", Name: "x", UID: "u"}, "of no cluster": {Namespace: "n", Name: "x", UID: "u"},
		"without UID": {Cluster: "c", Namespace: "n", Name: "x"}, "without name": {Cluster: "c", Namespace: "n", UID: "u"}, "without namespace": {Cluster: "c", Name: "x", UID: "u"},
	}
	table := map[claim]verdict{
		{"u", "", false}: machineWanted, {"u", "here", false}: machineWanted, {"u", "there", false}: machineKept,
		{"u", "", true}: machineWanted, {"u", "here", true}: machineWanted, {"u", "there", true}: machineKept,
		{"v", "", false}: machineKept, {"v", "here", false}: machineKept, {"v", "there", false}: machineKept,
		{"v", "", true}: machineKept, {"v", "here", true}: machineKept, {"v", "there", true}: machineKept,
		{"", "", false}: machineOrphan, {"", "", true}: machineKept,
	}
	decided := 0
	for name, owner := range owners {
		for _, cluster := range []string{"c", "", "e"} {
			for c, want := range table {
				decided++
				if name != "ours" || cluster != "c" {
					want = machineForeign
				}
				if got, why := judge(&api.Machine{Name: "k8s-n-x", Owner: owner}, cluster, "here", c); got != want || why == "" {
					t.Errorf("owner %s, cluster %q, %+v: %s, %q", name, cluster, c, got, why)
				}
			}
		}
	}
	t.Logf("%d states are decided", decided)
}

// TestMissing: only the API server's word on the object itself counts.
func TestMissing(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: resourceOfVMs}, "x")
	with := func(change func(*metav1.StatusDetails)) error {
		other := &apierrors.StatusError{ErrStatus: *gone.ErrStatus.DeepCopy()}
		change(other.ErrStatus.Details)
		return other
	}
	noDetails := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}}
	for sentence, test := range map[string]struct {
		err  error
		want bool
	}{
		"nothing went wrong":       {nil, false},
		"the object is missing":    {gone, true},
		"another error":            {context.DeadlineExceeded, false},
		"a refusal":                {apierrors.NewForbidden(schema.GroupResource{}, "x", nil), false},
		"no details":               {noDetails, false},
		"no name":                  {with(func(d *metav1.StatusDetails) { d.Name = "" }), false},
		"another name":             {with(func(d *metav1.StatusDetails) { d.Name = "y" }), false},
		"the namespace is missing": {with(func(d *metav1.StatusDetails) { d.Kind, d.Group = "namespaces", "" }), false},
		"a kind of another group":  {with(func(d *metav1.StatusDetails) { d.Group = "example.org" }), false},
		"a page that is not served": {with(func(d *metav1.StatusDetails) {
			d.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse}}
		}), false},
		"another cause": {with(func(d *metav1.StatusDetails) {
			d.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid}}
		}), true},
	} {
		if got := isMissing(test.err, "x"); got != test.want {
			t.Errorf("%s: missing %v", sentence, got)
		}
	}
}

func TestSightings(t *testing.T) {
	machine := func(name, owner string, created int64) api.Machine {
		return api.Machine{Name: name, CreatedAt: created, Owner: &api.Owner{UID: owner}}
	}
	a, again, otherOwner := machine("a", "u", 1), machine("a", "u", 2), machine("a", "v", 1)
	type look struct {
		after time.Duration
		seen  []api.Machine
	}
	for sentence, test := range map[string]struct {
		looks []look
		ripe  int
	}{
		"seen once":                                {[]look{{0, []api.Machine{a}}}, 0},
		"seen once, after hours without a look":    {[]look{{5 * time.Hour, []api.Machine{a}}}, 0},
		"seen twice too soon":                      {[]look{{0, []api.Machine{a}}, {orphanGrace - 1, []api.Machine{a}}}, 0},
		"seen twice after the grace":               {[]look{{0, []api.Machine{a}}, {orphanGrace, []api.Machine{a}}}, 1},
		"seen thrice":                              {[]look{{0, []api.Machine{a}}, {5 * time.Minute, []api.Machine{a}}, {orphanGrace, []api.Machine{a}}}, 1},
		"owned in between":                         {[]look{{0, []api.Machine{a}}, {5 * time.Minute, nil}, {orphanGrace, []api.Machine{a}}}, 0},
		"another machine of the name":              {[]look{{0, []api.Machine{a}}, {orphanGrace, []api.Machine{again}}}, 0},
		"another owner of the name":                {[]look{{0, []api.Machine{a}}, {orphanGrace, []api.Machine{otherOwner}}}, 0},
		"two that are ripe, one that is not":       {[]look{{0, []api.Machine{a, machine("b", "w", 1)}}, {orphanGrace, []api.Machine{a, machine("b", "w", 1), machine("c", "x", 1)}}}, 2},
		"the clock went backwards between the two": {[]look{{orphanGrace, []api.Machine{a}}, {0, []api.Machine{a}}}, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			start := time.Now()
			var seen sightings
			var ripe []api.Machine
			for _, l := range test.looks {
				seen, ripe = seen.next(l.seen, start.Add(l.after))
			}
			if len(ripe) != test.ripe {
				t.Errorf("%d are deleted", len(ripe))
			}
		})
	}
}
