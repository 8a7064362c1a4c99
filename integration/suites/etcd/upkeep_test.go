package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
)

// TestFullDatabase: a client writes until etcd accepts no more. etcd recovers by itself when overwritten data is
// compacted. If the data is still needed, it stays, and users see a message until they have deleted something.
func TestFullDatabase(t *testing.T) {
	t.Parallel()
	c := prepare(t, 1, 2, 3)
	c.quota = 32 << 20
	c.start()
	c.await(etcd.None, "")
	client := c.client()
	t.Cleanup(func() { _ = client.Close() })
	c.fill(client, func(int) string { return "filler/same" })
	c.awaitRoom(client)
	t.Log("what was overwritten is forgotten")
	written := c.fill(client, func(i int) string { return fmt.Sprintf("filler/%d", i) })
	c.await(etcd.Wait, etcd.ReasonFull)
	t.Logf("%d keys are in the way, and the reason is reported", written)
	_, err := client.Delete(t.Context(), "filler/", clientv3.WithPrefix())
	must(t, err)
	c.awaitRoom(client)
	c.nothingLost()
}

// TestMembersAreAskedWhileOneIsDefragmented: a caller gets the state of all members at once, including that one does
// not answer.
func TestMembersAreAskedWhileOneIsDefragmented(t *testing.T) {
	t.Parallel()
	c := prepare(t, 1, 2, 3)
	c.quota = 16 << 20
	c.start()
	c.await(etcd.None, "")
	client := c.client()
	t.Cleanup(func() { _ = client.Close() })
	c.fill(client, func(int) string { return "filler/same" })
	member := c.await(etcd.Defragment, etcd.ReasonDefragmenting).Step.Member
	signal := func(s os.Signal) {
		c.mu.Lock()
		defer c.mu.Unlock()
		must(t, c.machines[member.Name].Signal(s))
	}
	signal(syscall.SIGSTOP) // it takes its time
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if !c.current().Ask(ctx) {
		t.Fatal("no member was queried within a minute")
	}
	for _, w := range c.founders {
		want := etcd.VoteGiven
		if w.Name == member.Name {
			want = etcd.VoteMissing
		}
		if got, voters := c.current().Vote(w.Name); got != want || voters != len(c.founders) {
			t.Errorf("the vote of %s is %d of %d, want %d of %d", w.Name, got, voters, want, len(c.founders))
		}
	}
	signal(syscall.SIGCONT)
	// The member may have been defragmented before it has compacted, and its file is too small to be worth it again.
	c.await(etcd.None, "")
	c.nothingLost()
}

// fill writes values of 1 MiB until etcd rejects one, and returns their number.
func (c *cluster) fill(client *clientv3.Client, keyOf func(int) string) int {
	c.t.Helper()
	value := strings.Repeat("x", 1<<20)
	for i := range 1000 {
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		_, err := client.Put(ctx, keyOf(i), value)
		cancel()
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return i
		}
	}
	c.t.Fatal("etcd is never full")
	return 0
}

// awaitRoom waits until there is no alarm and all databases are smaller than half of their quota.
func (c *cluster) awaitRoom(client *clientv3.Client) {
	c.t.Helper()
	poll.Eventually(c.t, patience, 100*time.Millisecond, func() error {
		if err := c.room(client); err != nil {
			return fmt.Errorf("%w; the state is %+v", err, c.current().State())
		}
		return nil
	})
}

func (c *cluster) room(client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	alarms, err := client.AlarmList(ctx)
	if err != nil {
		return err
	}
	if len(alarms.Alarms) > 0 {
		return fmt.Errorf("there are alarms: %v", alarms.Alarms)
	}
	for _, e := range c.access().Endpoints {
		status, err := client.Status(ctx, "https://"+e.Address)
		if err != nil {
			return err
		}
		if status.DbSize > c.quota/2 {
			return fmt.Errorf("the database of %s has %d bytes", e.Name, status.DbSize)
		}
	}
	return nil
}
