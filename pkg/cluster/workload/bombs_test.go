package workload

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
)

// mostAboveIdle is how much memory one hostile cluster may cost the operator.
const mostAboveIdle = 64 << 20

// mostHeap returns a function that returns by how much the heap grew at most until it was called. Garbage counts.
func mostHeap() func() int64 {
	read := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	// With little time for the collector on a busy machine, garbage would count as much as what is in use.
	percent := debug.SetGCPercent(25)
	runtime.GC()
	idle := read()
	var most atomic.Int64
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			most.Store(max(most.Load(), read()-idle))
			select {
			case <-ended:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return func() int64 {
		close(ended)
		<-watched
		debug.SetGCPercent(percent)
		return most.Load()
	}
}

// onWatch does something to the watches of one resource, or of all.
func onWatch(resource string, do func(w http.ResponseWriter, r *http.Request)) func(*hostile) {
	return func(h *hostile) {
		h.watch = func(w http.ResponseWriter, r *http.Request, of string) bool {
			if resource != "" && of != resource {
				return false
			}
			stream(w)
			do(w, r)
			return true
		}
	}
}

// sends sends a bomb, and then waits.
func sends(resource string, bomb func() []byte) func(*hostile) {
	return onWatch(resource, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(bomb()) // it does not matter whether the client has gone
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
}

// repeats sends events endlessly.
func repeats(resource string, bomb func(i int) []byte) func(*hostile) {
	return onWatch(resource, func(w http.ResponseWriter, r *http.Request) {
		for i := 0; r.Context().Err() == nil; i++ {
			if _, err := w.Write(bomb(i)); err != nil {
				return
			}
		}
	})
}

// onList makes caches send list requests, and responds to those.
func onList(resource string, do func(w http.ResponseWriter, r *http.Request)) func(*hostile) {
	return func(h *hostile) {
		h.watch = func(w http.ResponseWriter, r *http.Request, of string) bool {
			if of != resource || r.URL.Query().Get("sendInitialEvents") == "" {
				return false
			}
			w.Header().Set("Content-Type", apiruntime.ContentTypeJSON)
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`))
			return true
		}
		h.list = func(w http.ResponseWriter, r *http.Request, of string) bool {
			if of == resource {
				w.Header().Set("Content-Type", apiruntime.ContentTypeProtobuf)
				do(w, r)
			}
			return of == resource
		}
	}
}

// nested is a schema in a schema, and so on.
func nested(levels int) []byte {
	sizes := make([]int, levels+1)
	for i := 1; i <= levels; i++ {
		sizes[i] = sizes[i-1] + 2 + len(binary.AppendUvarint(nil, uint64(sizes[i-1])))
	}
	var schema []byte
	for i := levels; i > 0; i-- {
		schema = binary.AppendUvarint(append(schema, 0xe2, 0x01), uint64(sizes[i-1])) // field 28: not
	}
	return schema
}

// TestBombs: one cluster costs at most 64 MiB, regardless of what it sends, and another one is connected meanwhile.
func TestBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: it takes a minute")
	}
	emptyKeys := func(n int) []byte {
		var data []byte
		for i := range n {
			data = append(data, put(2, put(1, binary.BigEndian.AppendUint32(nil, uint32(i))))...)
		}
		return data
	}
	listOf := func(n int) []byte { return object("v1", "NodeList", listMeta(""), times(n, put(2))) }
	for name, bomb := range map[string]func(*hostile){
		"512 KiB of items without content": onList("nodes", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(listOf(256 << 10)) }),
		"4 MiB of items without content":   onList("nodes", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(listOf(2<<20 - 100)) }),
		"a list that does not end": onList("nodes", func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(put(1))
			for chunk := listOf(8 << 10); r.Context().Err() == nil; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}),
		"pages that do not end": onList("nodes", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(object("v1", "NodeList", listMeta("more"), times(1000, put(2))))
		}),
		"a Node with taints without content": sends("nodes", func() []byte { return added("nodes", "a", put(2, times(750<<10, put(5)))) }),
		"endless Nodes":                      repeats("nodes", func(i int) []byte { return added("nodes", fmt.Sprintf("n%d", i)) }),
		"endless large Nodes": repeats("nodes", func(i int) []byte {
			return added("nodes", fmt.Sprintf("n%d", i), put(2, times(10<<10, put(5))))
		}),
		"one ConfigMap, repeatedly": repeats("configmaps", func(int) []byte {
			return added("configmaps", "a", put(2, put(1, []byte("k")), put(2, make([]byte, 1<<20))))
		}),
		"endless ConfigMaps": repeats("configmaps", func(i int) []byte {
			return added("configmaps", fmt.Sprintf("c%d", i), put(2, put(1, []byte("k")), put(2, make([]byte, 100<<10))))
		}),
		"a map with entries without content": sends("configmaps", func() []byte { return added("configmaps", "a", emptyKeys(190<<10)) }),
		"a schema of 100,000 levels":         sends("customresourcedefinitions", func() []byte { return added("customresourcedefinitions", "a", schemaOf(100_000)) }),
		"a schema of many properties": sends("customresourcedefinitions", func() []byte {
			return added("customresourcedefinitions", "a", put(2, put(7, put(4, put(1, times(200<<10, put(29)))))))
		}),
		"an event of 256 MiB": onWatch("nodes", func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(binary.BigEndian.AppendUint32(nil, 256<<20))
			for chunk := make([]byte, 64<<10); r.Context().Err() == nil; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}),
		"events that do not come whole, on all watches": onWatch("", func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(binary.BigEndian.AppendUint32(nil, largestFrame))
			_, _ = w.Write(make([]byte, largestFrame-1))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}),
		"JSON that was not asked for": func(h *hostile) {
			h.watch = func(w http.ResponseWriter, r *http.Request, _ string) bool {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"type":"ADDED","object":{"apiVersion":"v1","kind":"Node","metadata":{"annotations":{"a":"`))
				for text := []byte(strings.Repeat("x", 64<<10)); r.Context().Err() == nil; {
					if _, err := w.Write(text); err != nil {
						break
					}
				}
				return true
			}
		},
		"headers of 1 MiB": func(h *hostile) {
			text := strings.Repeat("x", 1<<20)
			h.watch = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
				w.Header().Set("A", text)
				return true
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, good := newHostile(t), newHostile(t)
			bomb(h)
			p := testPool(t)
			most := mostHeap()
			began := time.Now()
			c := p.Ensure(in("hostile"), h.access())
			time.Sleep(500 * time.Millisecond)
			until(t, p.Ensure(in("good"), good.access()), 20*time.Second, "connected", connected)
			took := time.Since(began)
			time.Sleep(3 * time.Second)
			grew := most()
			t.Logf("the heap grew by %d MiB at most, servers included; the other cluster was connected after %s; %s", grew>>20, took, c.State().Reason)
			if grew > mostAboveIdle {
				t.Errorf("the heap grew by %d MiB", grew>>20)
			}
			if c.State().Phase == Connected {
				t.Error("the hostile cluster is connected")
			}
		})
	}
}

func schemaOf(levels int) []byte { return put(2, put(7, put(4, put(1, nested(levels))))) }

// TestBombsAgainstTheDrainer: the drainer reads the pods of a Node from the API server itself.
func TestBombsAgainstTheDrainer(t *testing.T) {
	for name, do := range map[string]func(w http.ResponseWriter, r *http.Request){
		"pods without content": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(object("v1", "PodList", listMeta(""), times(2<<20-100, put(2))))
		},
		"pods with containers without content": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(object("v1", "PodList", listMeta(""), put(2, put(2, times(1<<20, put(2))))))
		},
		"endless pages": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(object("v1", "PodList", listMeta("more"), times(1000, put(2))))
		},
		"an endless answer": func(w http.ResponseWriter, r *http.Request) {
			for chunk := make([]byte, 64<<10); r.Context().Err() == nil; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		},
		"an answer in YAML": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/yaml")
			_, _ = w.Write([]byte("a: &a [x,x]\nb: &b [*a,*a]\n"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostile(t)
			h.list = func(w http.ResponseWriter, r *http.Request, _ string) bool {
				w.Header().Set("Content-Type", apiruntime.ContentTypeProtobuf)
				do(w, r)
				return true
			}
			c := testPool(t).Ensure(in("hostile"), h.access())
			until(t, c, 20*time.Second, "connected", connected)
			reader, _ := c.Live()
			most := mostHeap()
			var pods corev1.PodList
			err := reader.List(t.Context(), &pods)
			grew := most()
			t.Logf("the heap grew by %d MiB at most, the server included: %v", grew>>20, err)
			if err == nil || grew > mostAboveIdle {
				t.Errorf("the heap grew by %d MiB for %d pods, %v", grew>>20, len(pods.Items), err)
			}
			if c.State().Phase != Connected {
				t.Errorf("the cluster is %+v", c.State())
			}
		})
	}
}

// TestListsAreWholeAndComeInPages also checks that pages are smaller if objects are large.
func TestListsAreWholeAndComeInPages(t *testing.T) {
	const all = 30
	h := newHostile(t)
	h.list = func(w http.ResponseWriter, r *http.Request, _ string) bool {
		var limit, from int
		_, _ = fmt.Sscan(r.URL.Query().Get("limit"), &limit)
		_, _ = fmt.Sscan(r.URL.Query().Get("continue"), &from)
		content := [][]byte{nil}
		for i := from; i < min(from+limit, all); i++ {
			item := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Annotations: map[string]string{"a": strings.Repeat("x", 400<<10)}}}
			raw, _ := item.Marshal()
			content = append(content, put(2, raw))
		}
		content[0] = listMeta("")
		if from+limit < all {
			content[0] = listMeta(fmt.Sprint(from + limit))
		}
		w.Header().Set("Content-Type", apiruntime.ContentTypeProtobuf)
		_, _ = w.Write(object("v1", "PodList", content...))
		return true
	}
	c := testPool(t).Ensure(in("large"), h.access())
	until(t, c, 20*time.Second, "connected", connected)
	reader, _ := c.Live()
	var pods corev1.PodList
	if err := reader.List(t.Context(), &pods); err != nil {
		t.Fatal(err)
	}
	for i, pod := range pods.Items {
		if pod.Name != fmt.Sprint(i) {
			t.Fatalf("pod %d is %s", i, pod.Name)
		}
	}
	if len(pods.Items) != all {
		t.Errorf("%d pods were read, not %d", len(pods.Items), all)
	}
}
