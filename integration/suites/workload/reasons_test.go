package workload_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/workload"
)

func TestEachTroubleHasItsReason(t *testing.T) {
	t.Parallel()
	now, longAgo := time.Now(), time.Now().AddDate(-2, 0, 0)
	ready := newStranger(t, serverName, now, http.StatusOK)
	with := func(a workload.Access, change func(*workload.Access)) workload.Access {
		change(&a)
		return a
	}
	for name, c := range map[string]struct {
		access workload.Access
		want   workload.State
	}{
		"nothing listens": {
			access: accessTo(steady, newClosed(t)),
			want:   workload.State{Reason: workload.Refused, Message: "the connection to the API server is refused"},
		},
		"the server accepts and says nothing": {
			access: accessTo(steady, newMute(t)),
			want:   workload.State{Reason: workload.Timeout, Message: "the API server does not answer in time"},
		},
		"the reason is that of the address where the attempt got furthest": {
			access: accessTo(steady, newMute(t), newClosed(t)),
			want:   workload.State{Reason: workload.Refused, Message: "the connection to the API server is refused"},
		},
		"the name of the address is unknown": {
			access: accessTo(steady, "master.nowhere.invalid:443"),
			want:   workload.State{Reason: workload.NoRoute, Message: "there is no route to the API server's address"},
		},
		"no address is known": {
			access: with(accessTo(steady), func(a *workload.Access) { a.Addresses = nil }),
			want:   workload.State{Reason: workload.NoAddress, Message: "no address of the API server is known yet"},
		},
		"the server has another authority": {
			access: with(accessTo(steady), func(a *workload.Access) { a.CA = accessTo(mortal).CA }),
			want: workload.State{
				Reason: workload.UnknownAuthority, Message: "the API server's certificate was not signed by the cluster's CA",
			},
		},
		"the server's certificate has expired": {
			access: newStranger(t, serverName, longAgo, http.StatusOK).access(),
			want: workload.State{
				Reason: workload.CertificateExpired, Message: "the API server's certificate has expired or is not valid yet, or a clock is wrong",
			},
		},
		"the server's certificate is for another name": {
			access: newStranger(t, "api.other.example.com", now, http.StatusOK).access(),
			want:   workload.State{Reason: workload.CertificateInvalid, Message: "the API server's certificate is not one for localhost"},
		},
		"the API server does not know who signed the operator's certificate": {
			access: with(accessTo(steady), func(a *workload.Access) { a.Certificate, a.Key = ready.client.Certificate, ready.client.Key }),
			want:   workload.State{Reason: workload.Unauthorized, Message: "the API server does not accept the operator's certificate"},
		},
		"the API server's clock is off": {
			access: newStranger(t, serverName, now, http.StatusUnauthorized).isAhead(24 * time.Hour).access(),
			want: workload.State{
				Reason:  workload.Unauthorized,
				Message: "the API server does not accept the operator's certificate; its clock is ahead of the operator's by more than five minutes",
			},
		},
		"the handshake fails because of the operator's certificate": {
			access: newStranger(t, serverName, now, http.StatusOK, refuseClients).access(),
			want:   workload.State{Reason: workload.Unauthorized, Message: "the API server does not accept the operator's certificate"},
		},
		"the operator may not watch": {
			access: accessBy(configFor(t, "unprivileged")),
			want:   workload.State{Reason: workload.Unauthorized, Message: "the API server does not accept the operator's certificate"},
		},
		"the API server is not ready": {
			access: newStranger(t, serverName, now, http.StatusInternalServerError).access(),
			want:   workload.State{Reason: workload.NotReady, Message: "the API server is not ready: etcd"},
		},
		"something else answers": {
			access: newStranger(t, serverName, now, http.StatusNotFound).access(),
			want: workload.State{
				Reason: workload.Other, Message: "what answers at the API server's address does not behave like an API server",
			},
		},
		"the operator's key cannot be read": {
			access: with(accessTo(steady), func(a *workload.Access) { a.Key = nil }),
			want: workload.State{
				Reason:  workload.AccessInvalid,
				Message: "the operator's certificate for the workload cluster and its key cannot be read or do not belong together",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cluster := w.Ensure(named("troubled"), c.access)
			c.want.Phase = workload.Unreachable
			await(t, 2*soon, func() error {
				if w.of("troubled") == 0 {
					return errNoChange
				}
				return nil
			})
			if diff := cmp.Diff(c.want, cluster.State()); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
			if _, ok := cluster.Client(); ok {
				t.Error("there is a client, although the cluster is not connected")
			}
			if _, ok := cluster.Nodes(); ok {
				t.Error("there are Nodes, although the cluster is not connected")
			}
		})
	}
}

func configFor(t *testing.T, user string, groups ...string) *rest.Config {
	t.Helper()
	config, err := steady.RESTConfigFor(user, groups...)
	must(t, err)
	return config
}

// TestFoundingClusterIsAskedForReadinessOnly: an API server that starts has other work to do.
func TestFoundingClusterIsAskedForReadinessOnly(t *testing.T) {
	t.Parallel()
	server := newStranger(t, serverName, time.Now(), http.StatusInternalServerError)
	w := newWorld(t)
	w.Ensure(named("founding"), server.access())
	began := time.Now()
	await(t, soon, func() error {
		if len(server.asked()) < 4 {
			return errNoChange
		}
		return nil
	})
	// The back-offs are 0.5, 1 and 2 seconds, minus at most a fifth.
	if took := time.Since(began); took < 2500*time.Millisecond {
		t.Errorf("four attempts within %s", took)
	}
	for _, path := range server.asked() {
		if path != "/readyz" {
			t.Errorf("the API server was asked for %s", path)
		}
	}
	if n := w.of("founding"); n != 1 {
		t.Errorf("%d changes were reported, want 1: nothing is new after the first attempt", n)
	}
}

// TestServerThatSaysYesToEverything: the server is ready and has no objects.
func TestServerThatSaysYesToEverything(t *testing.T) {
	t.Parallel()
	server := newStranger(t, serverName, time.Now(), http.StatusOK)
	w := newWorld(t)
	c := w.Ensure(named("liar"), server.access())
	awaitState(t, c, 8*soon, unreachable(workload.Other)) // filling the caches may take a minute
	if asked := len(server.asked()); asked > 200 {
		t.Errorf("%d requests were sent before the server was given up", asked)
	}
}
