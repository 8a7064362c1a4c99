package osimage

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestErrorsThatStay(t *testing.T) {
	for name, c := range map[string]struct {
		fault    func(http.ResponseWriter, *http.Request, int) bool
		requests int
		want     string
	}{
		"not found is not asked for again": {
			fault: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
				w.WriteHeader(http.StatusNotFound)
				return true
			},
			requests: 1, want: "kernel: http://127.0.0.1:PORT/kernel: the server answers 404 Not Found",
		},
		"a server that stays broken is given up": {
			fault: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
				w.WriteHeader(http.StatusBadGateway)
				return true
			},
			requests: 4, want: "kernel: given up after 4 attempts: http://127.0.0.1:PORT/kernel: the server answers 502 Bad Gateway",
		},
		"a server that never gets further is given up": {
			fault: func(w http.ResponseWriter, r *http.Request, _ int) bool {
				r.Header.Del("Range")
				return cut(noise(1, kernelSize), 2<<20)(w, r, 1)
			},
			requests: 4, want: "given up after 4 attempts: http://127.0.0.1:PORT/kernel: the connection broke off: unexpected EOF",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			image := m.image("own")
			m.change("/kernel", func(r *resource) { r.fault = c.fault })
			cache, _ := newCache(t, t.TempDir())
			_, err := cache.Get(t.Context(), image)
			want := strings.ReplaceAll(c.want, "http://127.0.0.1:PORT", m.URL)
			if err == nil || !strings.Contains(err.Error(), "getting image own: ") || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
			if n := len(m.asked()); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
		})
	}
}

func TestSecretsOfURLsStayOutOfErrors(t *testing.T) {
	m := newMirror(t)
	image := m.image("own")
	image.Kernel.URL = strings.Replace(m.URL, "http://", "http://user:hunter2@", 1) + "/missing?token=hunter2"
	c, lines := newCache(t, t.TempDir())
	_, err := c.Get(t.Context(), image)
	m.Close()
	_, refused := c.Get(t.Context(), image)
	if err == nil || refused == nil || strings.Contains(err.Error()+refused.Error(), "hunter2") || lines.has("hunter2") {
		t.Errorf("%v, %v, %q", err, refused, lines.lines)
	}
}

func TestGetEndsWithItsContext(t *testing.T) {
	m := newMirror(t)
	image := m.image("own")
	begun := make(chan struct{})
	m.change("/kernel", func(r *resource) {
		r.fault = func(_ http.ResponseWriter, r *http.Request, _ int) bool {
			close(begun)
			<-r.Context().Done()
			return true
		}
	})
	c, _ := newCache(t, t.TempDir())
	over := errors.New("the pod is being deleted")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-begun; cancel(over) }()
	if _, err := c.Get(ctx, image); !errors.Is(err, over) {
		t.Errorf("error %v, want %v", err, over)
	}
}

func TestConnectionWithoutTrust(t *testing.T) {
	content := noise(1, 1000)
	plain := newMirror(t)
	plain.put("/kernel", content)
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/detour":
			http.Redirect(w, r, plain.URL+"/kernel", http.StatusFound)
		case "/circle":
			http.Redirect(w, r, "/circle", http.StatusFound)
		default:
			_, _ = w.Write(content)
		}
	}))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	image := func(file File) Image {
		return Image{Name: "own", Kernel: file, Initrd: File{URL: secure.URL + "/initrd"}}
	}
	for name, c := range map[string]struct {
		client *http.Client
		file   File
		want   string
	}{
		"a certificate of another CA":               {file: File{URL: secure.URL + "/kernel"}, want: "certificate"},
		"https alone will do":                       {client: secure.Client(), file: File{URL: secure.URL + "/kernel"}},
		"a detour over http will not":               {client: secure.Client(), file: File{URL: secure.URL + "/detour"}, want: errInsecure.Error()},
		"a detour without an end":                   {client: secure.Client(), file: File{URL: secure.URL + "/circle"}, want: "redirected too often"},
		"a detour over http to what has a checksum": {client: secure.Client(), file: File{URL: secure.URL + "/detour", SHA256: sumOf(content)}},
	} {
		t.Run(name, func(t *testing.T) {
			cache, lines := newCache(t, t.TempDir())
			cache.Client = c.client
			local, err := cache.Get(t.Context(), image(c.file))
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				requireContent(t, local.Kernel, content)
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || lines.has("trying again") {
				t.Errorf("error %v, want %q at once", err, c.want)
			}
		})
	}
}

// TestUnverifiableFileIsNotResumedByAnotherProcess, because a power failure in between could not be detected.
func TestUnverifiableFileIsNotResumedByAnotherProcess(t *testing.T) {
	content := noise(1, 1000)
	ranges := make(chan string, 2)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ranges <- r.Header.Get("Range")
		w.Header().Set("ETag", `"a"`)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(content)))
	}))
	t.Cleanup(server.Close)
	c, _ := newCache(t, t.TempDir())
	c.Client = server.Client()
	image := Image{Name: "own", Kernel: File{URL: server.URL + "/k"}, Initrd: File{URL: server.URL + "/i"}}
	name, err := slotName(image, c.keys())
	if err != nil {
		t.Fatal(err)
	}
	directory := filepath.Join(c.Directory, name)
	left := &download{file: image.Kernel, path: filepath.Join(directory, "kernel.part")}
	if err := errors.Join(os.MkdirAll(directory, 0o700), os.WriteFile(left.path, make([]byte, 500), 0o600),
		left.remember(origin{URL: image.Kernel.URL, ETag: `"a"`, Size: 1000})); err != nil {
		t.Fatal(err)
	}
	if offset, _ := left.left(); offset != 500 {
		t.Fatalf("%d bytes are left; the test is wrong", offset)
	}
	requireContent(t, get(t, c, image).Kernel, content)
	if asked := []string{<-ranges, <-ranges}; slices.Contains(asked, "bytes=500-") {
		t.Errorf("asked for %v", asked)
	}
}
