package joining_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// TestATokenGivesOneIdentityOnce: of all combinations of token, pod, recorded key and time, exactly those requests are
// approved that are made with the node's own token for its current pod before the node has joined, with the recorded
// key or after that key's time has passed.
func TestATokenGivesOneIdentityOnce(t *testing.T) {
	first, second := client(), client()
	keys := map[string]certificatesv1.CertificateSigningRequest{"first": first.obj(t), "second": second.obj(t)}
	hash := joining.Decide(keys["first"], world).Key
	if hash == "" || hash == joining.Decide(keys["second"], world).Key {
		t.Fatalf("a request is not known by its key: %q", hash)
	}
	tokens := map[string]joining.Token{
		"own": world.Tokens.Current(w0), "own of before": world.Tokens.Accepted(w0, noon)[1], "other worker's": world.Tokens.Current(w1), "master's": world.Tokens.Current(m0),
	}
	records := map[string]joining.Record{
		"nothing": {}, "a key just now": {Key: hash, At: noon.Add(-joining.KeyPatience / 2)}, "a key before": {Key: hash, At: noon.Add(-joining.KeyPatience)},
		"joined": {Joined: true}, "joined by the key": {Key: hash, At: noon.Add(-joining.KeyPatience), Joined: true},
	}
	nodes := map[string]*joining.Node{"current": &w0, "of another node": &w1, "not current": nil}
	for _, token := range slices.Sorted(maps.Keys(tokens)) {
		for _, noted := range slices.Sorted(maps.Keys(records)) {
			for _, pod := range slices.Sorted(maps.Keys(nodes)) {
				for name, request := range keys {
					w := world
					w.Pods = map[string]joining.Pod{podName: {Node: nodes[pod], Record: records[noted], Since: noon.Add(-time.Hour)}}
					request.Spec.Username = "system:bootstrap:" + tokens[token].ID
					want := nodes[pod] != nil && tokens[token].Node == *nodes[pod] && !records[noted].Joined && (noted != "a key just now" || name == "first")
					d := joining.Decide(request, w)
					if got := d.Verdict == joining.Approve; got != want || got != (d.Key != "") {
						t.Errorf("token %s, pod %s, noted %s, key %s: %+v, want approved %t", token, pod, noted, name, d, want)
					}
					if waits := d.Reason == joining.ReasonKeyTaken; waits != !d.Retry.IsZero() || waits && !d.Retry.Equal(noon.Add(joining.KeyPatience/2)) {
						t.Errorf("token %s, pod %s, noted %s, key %s: to be tried again %s", token, pod, noted, name, d.Retry)
					}
				}
			}
		}
	}
}

// TestARecordIsOfOnePod: a record is read unchanged, and is ignored if it is another pod's.
func TestARecordIsOfOnePod(t *testing.T) {
	for name, record := range map[string]joining.Record{
		"a key": {Key: "abc", At: noon}, "a key that joined": {Key: "abc", At: noon, Joined: true}, "joined before it was noted": {At: noon, Joined: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
			pod.Annotations = map[string]string{key.AnnotationJoining: record.Text(pod)}
			if diff := cmp.Diff(record, joining.RecordOf(pod)); diff != "" {
				t.Errorf("another record (-want +got):\n%s", diff)
			}
			pod.UID = "2"
			if diff := cmp.Diff(joining.Record{}, joining.RecordOf(pod)); diff != "" {
				t.Errorf("a record of another pod (-want +got):\n%s", diff)
			}
		})
	}
	for _, text := range []string{"", "1", "1 abc", "1 abc yesterday", "1 abc yesterday joined"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1", Annotations: map[string]string{key.AnnotationJoining: text}}}
		if diff := cmp.Diff(joining.Record{}, joining.RecordOf(pod)); diff != "" {
			t.Errorf("a record out of %q (-want +got):\n%s", text, diff)
		}
	}
}

// TestThatANodeHasJoinedIsNotedOnce: it is recorded once, and the key stays recorded.
func TestThatANodeHasJoinedIsNotedOnce(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1", Annotations: map[string]string{}}}
	before := joining.Record{Key: "abc", At: noon}
	for name, test := range map[string]struct{ before, want joining.Record }{
		"with a key":    {before, joining.Record{Key: "abc", At: noon, Joined: true}},
		"without a key": {joining.Record{}, joining.Record{At: noon.Add(time.Hour), Joined: true}},
	} {
		pod.Annotations[key.AnnotationJoining] = test.before.Text(pod)
		if test.before == (joining.Record{}) {
			delete(pod.Annotations, key.AnnotationJoining)
		}
		record, changed := joining.Joined(pod, noon.Add(time.Hour))
		if diff := cmp.Diff(test.want, record); diff != "" || !changed {
			t.Errorf("%s: changed %t, another record (-want +got):\n%s", name, changed, diff)
		}
		pod.Annotations[key.AnnotationJoining] = record.Text(pod)
		if _, changed := joining.Joined(pod, noon.Add(2*time.Hour)); changed {
			t.Errorf("%s: it is noted again", name)
		}
	}
}

// TestTokensAreWantedWhileTheyAreOfUse: a workload cluster has no tokens while no node joins, and 500 if 500 workers
// join at once, or twice as many after the period has changed.
func TestTokensAreWantedWhileTheyAreOfUse(t *testing.T) {
	count := func(now time.Time, joined int) int {
		var pods []corev1.Pod
		nodes := map[string]bool{}
		for i := range 500 {
			name := fmt.Sprintf("pod-%d", i)
			pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(noon.Add(time.Hour))}})
			nodes[name] = i < joined
		}
		w := joining.NewWorld(pods, nodes, joining.TokensAt(seed, now), now)
		if wanted := w.Wanted(); len(wanted) > 0 {
			t.Errorf("%d tokens of pods that are no node's", len(wanted))
		}
		for i := range 500 {
			w.Expect(fmt.Sprintf("pod-%d", i), joining.Node{Role: "worker", ID: fmt.Sprintf("w%d", i)})
		}
		w.Expect("gone", joining.Node{Role: "worker", ID: "gone"})
		return len(w.Wanted())
	}
	for name, test := range map[string]struct {
		after        time.Duration
		joined, want int
	}{
		"none has joined": {time.Hour, 0, 500}, "half have": {time.Hour, 250, 250}, "all have": {time.Hour, 500, 0}, "none has, a period later": {13 * time.Hour, 0, 1000},
	} {
		if got := count(noon.Add(test.after), test.joined); got != test.want {
			t.Errorf("%s: %d tokens are wanted, want %d", name, got, test.want)
		}
	}
}

// TestWhatWasNotedCountsAtOnce: a second key in the same pass is rejected.
func TestWhatWasNotedCountsAtOnce(t *testing.T) {
	w := world
	w.Pods = map[string]joining.Pod{podName: {Node: &w0, Since: noon.Add(-time.Hour), Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7")}}}
	d := joining.Decide(client().obj(t), w)
	w.Note(podName, joining.Record{Key: d.Key, At: noon})
	if d = joining.Decide(client().obj(t), w); d.Reason != joining.ReasonKeyTaken {
		t.Errorf("a second key: %+v", d)
	}
}
