package osimage

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestFaultsOfTheServerAreOvercome: regardless of faults in the first responses, the complete file is there in the end.
func TestFaultsOfTheServerAreOvercome(t *testing.T) {
	content := noise(1, kernelSize)
	for name, c := range map[string]struct {
		fault func(http.ResponseWriter, *http.Request, int) bool
		setup func(*resource)
		// requests are the expected ranges, "" for one of the whole file.
		requests []string
		most     int64 // bytes served
		stall    time.Duration
	}{
		"a connection that breaks off is resumed": {
			fault: cut(content, 2<<20), requests: []string{"", "bytes=2097152-"}, most: kernelSize,
		},
		"one that breaks off in the first byte": {fault: cut(content, 0), requests: []string{"", ""}, most: kernelSize},
		"one that breaks off in the last byte": {
			fault: cut(content, kernelSize-1), requests: []string{"", fmt.Sprintf("bytes=%d-", kernelSize-1)}, most: kernelSize,
		},
		"a date will do when there is no entity tag": {
			setup: func(r *resource) { r.etag, r.date = "", time.Unix(1700000000, 0) },
			fault: cut2(content, 2<<20), requests: []string{"", "bytes=2097152-"}, most: kernelSize,
		},
		"a weak entity tag will not": {
			setup: func(r *resource) { r.etag = "W/" + r.etag },
			fault: cut(content, 2<<20), requests: []string{"", ""}, most: kernelSize + 2<<20,
		},
		"without both it starts again": {
			setup: func(r *resource) { r.etag = "" },
			fault: cut(content, 2<<20), requests: []string{"", ""}, most: kernelSize + 2<<20,
		},
		"a server that knows no ranges": {
			fault: func(w http.ResponseWriter, r *http.Request, n int) bool {
				r.Header.Del("Range")
				return cut(content, 2<<20)(w, r, n)
			},
			requests: []string{"", "bytes=2097152-"}, most: kernelSize + 2<<20,
		},
		"a server that answers with another range": {
			fault:    answerRange(content, func(first int) int { return first + 1 }),
			requests: []string{"", "bytes=2097152-", ""}, most: 2*kernelSize + 2<<20,
		},
		"a server that forgets to say which range": {
			fault: func(w http.ResponseWriter, r *http.Request, n int) bool {
				if n != 2 {
					return cut(content, 2<<20)(w, r, n)
				}
				w.WriteHeader(http.StatusPartialContent)
				_, _ = w.Write(content[:1000])
				return true
			},
			requests: []string{"", "bytes=2097152-", ""}, most: kernelSize + 2<<20 + 1000,
		},
		"errors of the server": {
			fault: func(w http.ResponseWriter, _ *http.Request, n int) bool {
				if n <= 3 {
					w.WriteHeader([]int{500, 503, 429}[n-1])
				}
				return n <= 3
			},
			requests: []string{"", "", "", ""}, most: kernelSize,
		},
		"a server that falls silent": {
			fault: func(w http.ResponseWriter, r *http.Request, n int) bool {
				if n > 1 {
					return false
				}
				w.Header().Set("Content-Length", fmt.Sprint(len(content)))
				_, _ = w.Write(content[:1<<20])
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				return true
			},
			requests: []string{"", "bytes=1048576-"}, most: kernelSize, stall: time.Second,
		},
		"a server that accepts and says nothing": {
			fault: func(_ http.ResponseWriter, r *http.Request, n int) bool {
				if n == 1 {
					<-r.Context().Done()
				}
				return n == 1
			},
			requests: []string{"", ""}, most: kernelSize, stall: time.Second,
		},
		"a server that does not say how long the file is": {
			fault: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
				_ = http.NewResponseController(w).Flush()
				_, _ = w.Write(content)
				return true
			},
			requests: []string{""}, most: kernelSize,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			image := m.image("own")
			m.change("/kernel", func(r *resource) {
				r.fault = c.fault
				if c.setup != nil {
					c.setup(r)
				}
			})
			cache, lines := newCache(t, t.TempDir())
			if c.stall > 0 {
				cache.timing.stall = c.stall
			}
			requireContent(t, get(t, cache, image).Kernel, content)
			if diff := cmp.Diff(c.requests, rangesOf(m, "/kernel")); diff != "" {
				t.Errorf("requests: %s", diff)
			}
			if lines.has("it was downloaded in parts") {
				t.Error("wrong pieces were put together")
			}
			if served := m.servedOf("/kernel"); served > c.most {
				t.Errorf("%d bytes were served, at most %d are needed", served, c.most)
			}
		})
	}
}

// cut2 is cut for a file with a date.
func cut2(content []byte, n int) func(http.ResponseWriter, *http.Request, int) bool {
	return func(w http.ResponseWriter, r *http.Request, asked int) bool {
		w.Header().Set("Last-Modified", time.Unix(1700000000, 0).UTC().Format(http.TimeFormat))
		return cut(content, n)(w, r, asked)
	}
}

// answerRange breaks off, responds to the next request with another range, and then behaves.
func answerRange(content []byte, first func(int) int) func(http.ResponseWriter, *http.Request, int) bool {
	return func(w http.ResponseWriter, r *http.Request, n int) bool {
		if n != 2 {
			return cut(content, 2<<20)(w, r, n)
		}
		begin := first(2 << 20)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", begin, len(content)-1, len(content)))
		w.Header().Set("Content-Length", fmt.Sprint(len(content)-begin))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(content[begin:])
		return true
	}
}

func rangesOf(m *mirror, path string) []string {
	var ranges []string
	for _, request := range m.asked() {
		if asked, of := strings.CutPrefix(request, path); of {
			ranges = append(ranges, strings.TrimSpace(asked))
		}
	}
	return ranges
}

func TestFileThatChangesDuringItsDownloadStartsAgain(t *testing.T) {
	m := newMirror(t)
	before, after := noise(1, kernelSize), noise(7, kernelSize)
	image := m.image("own")
	image.Kernel.SHA256 = sumOf(after)
	m.change("/kernel", func(r *resource) {
		r.fault = func(w http.ResponseWriter, request *http.Request, n int) bool {
			if n == 1 {
				m.change("/kernel", func(r *resource) { r.content, r.etag = after, `"new"` })
			}
			return cut(before, 2<<20)(w, request, n)
		}
	})
	c, _ := newCache(t, t.TempDir())
	requireContent(t, get(t, c, image).Kernel, after)
	if diff := cmp.Diff([]string{"", "bytes=2097152-"}, rangesOf(m, "/kernel")); diff != "" {
		t.Errorf("requests: %s", diff)
	}
}

// TestPiecesOfTwoFilesAreRepaired: the server claims that the file is still the same, and it is not.
func TestPiecesOfTwoFilesAreRepaired(t *testing.T) {
	m := newMirror(t)
	before, after := noise(7, kernelSize), noise(1, kernelSize)
	image := m.image("own")
	m.change("/kernel", func(r *resource) { r.fault = cut(before, 2<<20) })
	c, lines := newCache(t, t.TempDir())
	requireContent(t, get(t, c, image).Kernel, after)
	if diff := cmp.Diff([]string{"", "bytes=2097152-", ""}, rangesOf(m, "/kernel")); diff != "" {
		t.Errorf("requests: %s", diff)
	}
	if !lines.has("it was downloaded in parts, downloading it again") {
		t.Errorf("nothing told: %q", lines.lines)
	}
}
