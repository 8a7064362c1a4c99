package smolvmruntime

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for path, test := range map[string]struct {
		method string
		what   found
		sent   string
	}{
		"/api/v1/machines":                       {http.MethodGet, foundRoute, "/api/v1/machines?"},
		"/api/v1/machines?watch=true&watch=no":   {http.MethodGet, foundRoute, "/api/v1/machines?watch=true"},
		"/api/v1/machines?evil=1":                {http.MethodPost, foundRoute, "/api/v1/machines?"},
		"/api/v1/machines/":                      {http.MethodGet, foundNothing, ""},
		"/api/v1/machines/m":                     {http.MethodDelete, foundRoute, "/api/v1/machines/m?"},
		"/api/v1/machines/m?force=true":          {http.MethodDelete, foundRoute, "/api/v1/machines/m?"},
		"/api/v1/machines/m/":                    {http.MethodGet, foundNothing, ""},
		"/api/v1/machines/m/start":               {http.MethodPost, foundRoute, "/api/v1/machines/m/start?"},
		"/api/v1/machines/m/start/":              {http.MethodPost, foundNothing, ""},
		"/api/v1/machines/m/stop":                {http.MethodGet, foundOtherMethods, ""},
		"/api/v1/machines/m/exec/stream":         {http.MethodPost, foundRoute, "/api/v1/machines/m/exec/stream?"},
		"/api/v1/machines/m/exec/interactive":    {http.MethodGet, foundNothing, ""},
		"/api/v1/machines/m/logs?tail=5&x=y":     {http.MethodGet, foundRoute, "/api/v1/machines/m/logs?tail=5"},
		"/api/v1/machines/m/files/etc/shadow":    {http.MethodGet, foundNothing, ""},
		"/api/v1/machines/m/export":              {http.MethodPost, foundNothing, ""},
		"/api/v1/machines/..":                    {http.MethodGet, foundNoName, ""},
		"/api/v1/machines/%2e%2e":                {http.MethodGet, foundNoName, ""},
		"/api/v1/machines/%2e%2e/%2e%2e/drain":   {http.MethodPost, foundNothing, ""},
		"/api/v1/machines/m%2fstart":             {http.MethodPost, foundNoName, ""},
		"/api/v1/machines/m%00":                  {http.MethodGet, foundNoName, ""},
		"/api/v1/machines/m/../../../drain":      {http.MethodPost, foundNothing, ""},
		"/api/v1/machines//start":                {http.MethodPost, foundNothing, ""},
		"/api/v1//machines":                      {http.MethodGet, foundNothing, ""},
		"//api/v1/machines":                      {http.MethodGet, foundNothing, ""},
		"/api/v1/machinesx":                      {http.MethodGet, foundNothing, ""},
		"/api/v1/machines/m;x=1":                 {http.MethodGet, foundNoName, ""},
		"/api/v1/machines/-m":                    {http.MethodGet, foundNoName, ""},
		"/API/v1/machines":                       {http.MethodGet, foundNothing, ""},
		"/drain":                                 {http.MethodPost, foundNothing, ""},
		"/metrics":                               {http.MethodGet, foundNothing, ""},
		"/health":                                {http.MethodGet, foundNothing, ""},
		"/api/v1/machines/" + longName[:128]:     {http.MethodGet, foundRoute, "/api/v1/machines/" + longName[:128] + "?"},
		"/api/v1/machines/" + longName:           {http.MethodGet, foundNoName, ""},
		"/api/v1/machines/m/resize#fragment":     {http.MethodPost, foundRoute, "/api/v1/machines/m/resize?"},
		"/api/v1/machines/m/egress-events?limit": {http.MethodGet, foundRoute, "/api/v1/machines/m/egress-events?limit="},
	} {
		t.Run(test.method+" "+path, func(t *testing.T) {
			u, err := url.Parse(path)
			if strings.HasPrefix(path, "//") {
				u, err = &url.URL{Path: path}, nil // as package http reads a request line
			}
			if err != nil {
				t.Fatal(err)
			}
			got, what, allowed := match(test.method, u, true)
			sent := ""
			if what == foundRoute {
				sent = got.path + "?" + got.query.Encode()
			}
			if what != test.what || sent != test.sent || (what == foundOtherMethods) != (len(allowed) > 0) {
				t.Errorf("%v, %q, allowed %v", what, sent, allowed)
			}
		})
	}
}

// TestStreamsOfGuestsAreClosed: without the setting, the paths are none, and all else is as with it.
func TestStreamsOfGuestsAreClosed(t *testing.T) {
	for i := range machineRoutes {
		r := &machineRoutes[i]
		u, err := url.Parse(strings.Replace(r.pattern(), "{name}", "m", 1))
		if err != nil {
			t.Fatal(err)
		}
		want := foundRoute
		if r.below == "/exec/stream" || r.below == "/logs" {
			want = foundNothing
		}
		if _, what, _ := match(r.method, u, false); what != want {
			t.Errorf("%s %s is %v", r.method, u, what)
		}
		if _, what, _ := match(r.method, u, true); what != foundRoute {
			t.Errorf("%s %s is %v with the setting", r.method, u, what)
		}
	}
}

var longName = strings.Repeat("m", 129)

// FuzzMatch: whatever a client sends, smolvm gets a path of the list with a harmless name.
func FuzzMatch(f *testing.F) {
	for _, seed := range []string{"/api/v1/machines", "/api/v1/machines/a/start?x", "/api/v1/machines/%2e%2e/drain", "/api/v1/machines/a%2fb", "/a/../api/v1/machines", "*", "/api/v1/machines/a/logs?follow=%0d%0a"} {
		f.Add(http.MethodGet, seed)
		f.Add(http.MethodPost, seed)
	}
	f.Fuzz(func(t *testing.T, method, text string) {
		u, err := url.ParseRequestURI(text)
		if err != nil {
			return
		}
		got, what, _ := match(method, u, true)
		if what != foundRoute {
			return
		}
		rest, ok := strings.CutPrefix(got.path, ofMachines)
		if !ok || got.route.method != method {
			t.Fatalf("%s %q became %s %q", method, text, got.route.method, got.path)
		}
		if got.route.machine {
			name := strings.TrimSuffix(strings.TrimPrefix(rest, "/"), got.route.below)
			rest = got.route.below
			if !machineName.MatchString(name) {
				t.Fatalf("the name is %q", name)
			}
		}
		if rest != got.route.below || strings.ContainsAny(got.query.Encode(), "\r\n ") {
			t.Fatalf("%q became %q and %q", text, got.path, got.query.Encode())
		}
		for key, values := range got.query {
			if !slices.Contains(got.route.query, key) || len(values) != 1 {
				t.Fatalf("%q has the parameter %q", text, key)
			}
		}
	})
}
