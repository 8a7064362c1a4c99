package service

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/undecodable"
)

// kvmConfigs is an API server that serves only KVMConfigs.
type kvmConfigs struct {
	mu sync.Mutex
	// objects are JSON by name; version is that of the newest.
	objects map[string]string
	version int
	events  []string
	// streams makes lists come as watches, as newer API servers send them.
	streams bool
	asked   []string
}

func (k *kvmConfigs) put(name, most string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kind := "MODIFIED"
	if k.objects[name] == "" {
		kind = "ADDED"
	}
	k.version++
	k.objects[name] = fmt.Sprintf(`{"apiVersion":"provider.giantswarm.io/v1alpha1","kind":"KVMConfig","metadata":{"name":%q,"namespace":"default","resourceVersion":"%d"},
		"spec":{"cluster":{"id":%q,"scaling":{"max":%s}}}}`, name, k.version, name, most)
	k.events = append(k.events, fmt.Sprintf(`{"type":%q,"object":%s}`, kind, k.objects[name]))
}

func (k *kvmConfigs) remove(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version++
	object := strings.Replace(k.objects[name], `"resourceVersion":"`, fmt.Sprintf(`"resourceVersion":"%d`, k.version), 1)
	delete(k.objects, name)
	k.events = append(k.events, fmt.Sprintf(`{"type":"DELETED","object":%s}`, object))
}

func (k *kvmConfigs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	k.asked = append(k.asked, r.URL.String())
	k.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") == "" {
		_, _ = w.Write([]byte(k.list()))
		return
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" && !k.streams {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonInvalid, Code: 422})
		return
	}
	sent := k.first(w, r.URL.Query())
	for r.Context().Err() == nil {
		k.mu.Lock()
		for ; sent < len(k.events); sent++ {
			_, _ = fmt.Fprintln(w, strings.ReplaceAll(k.events[sent], "\n", ""))
		}
		k.mu.Unlock()
		w.(http.Flusher).Flush()
		time.Sleep(5 * time.Millisecond)
	}
}

// first sends the existing objects, if the client requests them, and returns how many events the client has: each event
// makes one version.
func (k *kvmConfigs) first(w http.ResponseWriter, query url.Values) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if query.Get("sendInitialEvents") == "true" {
		for _, o := range k.objects {
			_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", strings.ReplaceAll(o, "\n", ""))
		}
		_, _ = fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"apiVersion":"provider.giantswarm.io/v1alpha1","kind":"KVMConfig",
			"metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", k.version)
		return len(k.events)
	}
	version, _ := strconv.Atoi(query.Get("resourceVersion")) // no version means 0
	return version
}

func (k *kvmConfigs) list() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var items []string
	for _, o := range k.objects {
		items = append(items, o)
	}
	return fmt.Sprintf(`{"apiVersion":"provider.giantswarm.io/v1alpha1","kind":"KVMConfigList","metadata":{"resourceVersion":"%d"},"items":[%s]}`,
		k.version, strings.Join(items, ","))
}

// TestTheCacheSurvivesObjectsThatCannotBeDecoded checks objects that exist when the cache starts, that are created
// later, and that are corrected or deleted, both with lists and with streams.
func TestTheCacheSurvivesObjectsThatCannotBeDecoded(t *testing.T) {
	const good, bad = "3", "4294967296"
	for name, streams := range map[string]bool{"by a list": false, "by a stream": true} {
		t.Run(name, func(t *testing.T) {
			server := &kvmConfigs{objects: map[string]string{}, streams: streams}
			server.put("well", good)
			server.put("bad", bad)
			c := startCache(t, server)
			expect(t, c, map[string]bool{"well": true, "bad": false})
			server.put("well", bad)
			expect(t, c, map[string]bool{"well": false, "bad": false})
			server.put("bad", good)
			expect(t, c, map[string]bool{"well": false, "bad": true})
			server.put("new", bad)
			expect(t, c, map[string]bool{"well": false, "bad": true, "new": false})
			server.remove("well")
			expect(t, c, map[string]bool{"bad": true, "new": false})
			server.mu.Lock()
			defer server.mu.Unlock()
			for _, asked := range server.asked {
				if !strings.Contains(asked, "labelSelector=a%3Db") {
					t.Errorf("it asks for %s, which is not what it is responsible for", asked)
				}
			}
			if len(server.asked) > 3 {
				t.Errorf("it keeps asking: %v", server.asked)
			}
		})
	}
}

func startCache(t *testing.T, server http.Handler) cache.Cache {
	t.Helper()
	listening := httptest.NewServer(server)
	t.Cleanup(listening.Close)
	config := &rest.Config{Host: listening.URL}
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	mapper, err := NewMapper(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	by, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	selector := labels.SelectorFromSet(labels.Set{"a": "b"})
	options := CacheOptions(selector)
	options.Scheme, options.Mapper, options.HTTPClient = scheme, mapper, by
	c, err := NewCache(selector)(config, options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if !c.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache does not start")
	}
	return c
}

// expect waits until the cache has the objects, each decoded or not as wanted.
func expect(t *testing.T, c client.Reader, want map[string]bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		var list v1alpha1.KVMConfigList
		if err := c.List(ctx, &list); err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for i := range list.Items {
			item := &list.Items[i]
			got[item.Name] = undecodable.Why(item) == "" && item.Spec.Cluster.Scaling.Max == 3
		}
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the cache has %v, want %v", got, want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
