package lab

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Watch passes every change to the objects of a kind from now on to see, in order and one at a time, until the test
// ends or the API server does.
func Watch[T client.Object](t testing.TB, l *Lab, list client.ObjectList, see func(watch.EventType, T), options ...client.ListOption) {
	t.Helper()
	watcher, err := client.NewWithWatch(l.RESTConfig(), client.Options{Scheme: l.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := watcher.List(context.Background(), list, options...); err != nil {
		t.Fatal(err)
	}
	since := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
	w, err := watcher.Watch(context.Background(), list, append(options, since)...)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range w.ResultChan() {
			if object, ok := event.Object.(T); ok {
				see(event.Type, object)
			}
		}
	}()
	t.Cleanup(func() {
		w.Stop()
		<-done
	})
}
