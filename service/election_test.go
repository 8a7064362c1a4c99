package service

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/lifecycle"
)

// TestRunnersAreToldByTheLeaderOnly: the exec that tells runners is a GET.
func TestRunnersAreToldByTheLeaderOnly(t *testing.T) {
	told := 0
	f := fence.New("giantswarm/kvm-operator", time.Hour, fence.SinceBoot)
	release := fenced(f, func(context.Context, string, string) error { told++; return nil })
	if err := release(t.Context(), "ab1cd", "pod"); !errors.Is(err, fence.ErrRefused) || told != 0 {
		t.Errorf("through the closed fence: %v, told %d times", err, told)
	}
	f.Renewed(f.Now())
	if err := release(t.Context(), "ab1cd", "pod"); err != nil || told != 1 {
		t.Errorf("through the open fence: %v, told %d times", err, told)
	}
}

// TestAReplicaThatLostTheLeadEnds checks that it ends at once, although its manager has not noticed.
func TestAReplicaThatLostTheLeadEnds(t *testing.T) {
	s, err := New(t.Context(), Config{
		REST: &rest.Config{Host: "http://127.0.0.1:1"}, Selector: labels.Everything(),
		Election: Election{Namespace: "giantswarm", Name: "kvm-operator", Holds: 15 * time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.rest.Timeout != 0 || s.rest.UserAgent != rest.DefaultKubernetesUserAgent() {
		t.Errorf("all requests have %s, by the name %s; that is for those about the Lease", s.rest.Timeout, s.rest.UserAgent)
	}
	s.fence.Renewed(s.fence.Now())
	s.fence.Lose()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Run(ctx); !errors.Is(err, lifecycle.ErrLost) {
		t.Errorf("err = %v", err)
	}
}
