package managementcluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

const auditLog = "audit.log"

// auditPolicy records every request once it is answered, and long-running requests also when they start.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

// Request is one request that the API server has answered. Watches count from their start.
type Request struct {
	User, UserAgent              string
	Verb                         string // get, list, watch, create, update, patch, delete, deletecollection; otherwise HTTP's
	Group, Resource, Subresource string
	Namespace, Name              string
	Code                         int // of the HTTP response
}

func (r Request) String() string {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return fmt.Sprintf("%s: %s %s %s/%s: %d", r.User, r.Verb, resource, r.Namespace, r.Name, r.Code)
}

// auditEvent is the part of audit.k8s.io/v1 Event that a Request is made from.
type auditEvent struct {
	AuditID   string
	Verb      string
	User      struct{ Username string }
	UserAgent string
	ObjectRef struct{ APIGroup, Resource, Subresource, Namespace, Name string }

	ResponseStatus struct{ Code int }
}

// Requests returns the requests answered so far that the filter accepts, in the order of the audit log. It needs
// Options.Audit.
func (c *Cluster) Requests(filter func(Request) bool) ([]Request, error) {
	if !c.options.Audit {
		return nil, errors.New("requests are not recorded: start the management cluster with Options.Audit")
	}
	file, err := os.Open(c.path(auditLog))
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer file.Close()
	requests, err := readRequests(file, filter)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log %s: %w", file.Name(), err)
	}
	return requests, nil
}

func readRequests(log io.Reader, filter func(Request) bool) ([]Request, error) {
	var requests []Request
	seen := map[string]bool{}
	for reader := bufio.NewReader(log); ; {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return requests, nil // an incomplete last line is being written
		}
		if err != nil {
			return nil, err
		}
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		if seen[event.AuditID] {
			continue
		}
		seen[event.AuditID] = true
		if request := event.request(); filter(request) {
			requests = append(requests, request)
		}
	}
}

func (e auditEvent) request() Request {
	return Request{
		User: e.User.Username, UserAgent: e.UserAgent,
		Verb:  e.Verb,
		Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource,
		Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
		Code: e.ResponseStatus.Code,
	}
}
