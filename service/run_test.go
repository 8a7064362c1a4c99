package service

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
)

// TestStopsWhileTheAPIServerIsNotThere: controller-runtime's manager loops without end if its context ends before the
// caches are filled.
func TestStopsWhileTheAPIServerIsNotThere(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := New(ctx, Config{REST: &rest.Config{Host: "http://127.0.0.1:1"}, Selector: labels.Everything()})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("err = %v, want none", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the service does not stop")
	}
}
