package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
)

const machinesPath = "/api/v1/machines"

// machinePath returns the path of a machine, or of what is below it. A name that would change the path is refused: it is
// no machine's.
func machinePath(name, below string) (string, error) {
	if name == "" || name == "." || name == ".." {
		return "", Errorf(CodeBadRequest, "%q is no name of a machine", name)
	}
	return machinesPath + "/" + url.PathEscape(name) + below, nil
}

// onMachine asks for something below a machine.
func onMachine[T any](ctx context.Context, c *Client, method, name, below string, body any, limit int64) (T, error) {
	target, err := machinePath(name, below)
	if err != nil {
		var none T
		return none, err
	}
	return ask[T](ctx, c, call{method: method, path: target, body: body}, limit)
}

// List returns all machines.
func (c *Client) List(ctx context.Context) ([]Machine, error) {
	list, err := ask[Machines](ctx, c, call{method: http.MethodGet, path: machinesPath}, maxAnswer)
	return list.Machines, err
}

// Get returns a machine. The error is IsNotFound if there is none.
func (c *Client) Get(ctx context.Context, name string) (Machine, error) {
	return onMachine[Machine](ctx, c, http.MethodGet, name, "", nil, maxAnswer)
}

// Create makes a machine and does not start it. Of the same name and another request there may be none: CodeConflict.
// The same request twice is answered twice with the machine; smolvm itself answers the second with CodeConflict.
func (c *Client) Create(ctx context.Context, r CreateRequest) (Machine, error) {
	return ask[Machine](ctx, c, call{method: http.MethodPost, path: machinesPath, body: r}, maxAnswer)
}

// Start starts a machine unless it runs, and returns when its guest's agent answers. It may pull the image first.
func (c *Client) Start(ctx context.Context, name string, r StartRequest) (Machine, error) {
	var body any
	if r.RegistryAuth != nil {
		body = r
	}
	return onMachine[Machine](ctx, c, http.MethodPost, name, "/start", body, maxAnswer)
}

// Stop stops a machine unless it is stopped.
func (c *Client) Stop(ctx context.Context, name string) (Machine, error) {
	return onMachine[Machine](ctx, c, http.MethodPost, name, "/stop", nil, maxAnswer)
}

// Delete stops a machine and removes it with its disks. The error is IsNotFound if there is none.
func (c *Client) Delete(ctx context.Context, name string) error {
	_, err := onMachine[Deleted](ctx, c, http.MethodDelete, name, "", nil, maxAnswer)
	return err
}

// Resize grows the disks of a machine that does not run: CodeConflict if it does, CodeBadRequest if one would shrink.
func (c *Client) Resize(ctx context.Context, name string, r ResizeRequest) (Machine, error) {
	return onMachine[Machine](ctx, c, http.MethodPost, name, "/resize", r, maxAnswer)
}

// Exec runs a command in the guest and returns its output, of at most some MiB. It starts the machine if it does not
// run.
func (c *Client) Exec(ctx context.Context, name string, r ExecRequest) (ExecResponse, error) {
	return onMachine[ExecResponse](ctx, c, http.MethodPost, name, "/exec", r, maxExecAnswer)
}

// EgressEvents returns the last connections of the guest that were refused, at most limit.
func (c *Client) EgressEvents(ctx context.Context, name string, limit int) ([]EgressEvent, error) {
	target, err := machinePath(name, "/egress-events")
	if err != nil {
		return nil, err
	}
	q := call{method: http.MethodGet, path: target, query: url.Values{"limit": {strconv.Itoa(limit)}}}
	list, err := ask[EgressEvents](ctx, c, q, maxAnswer)
	return list.Events, err
}

// ReadFile copies a file of the guest, named by its absolute path, to a writer. It starts the machine if it does not run.
// The guest decides how long the file is; a writer that has enough returns an error.
func (c *Client) ReadFile(ctx context.Context, name, file string, out io.Writer) error {
	target, err := filePath(name, file)
	if err != nil {
		return err
	}
	answer, err := c.send(ctx, call{method: http.MethodGet, path: target})
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := io.Copy(out, answer.Body); err != nil {
		return fmt.Errorf("reading %s of machine %s: %w", file, name, err)
	}
	return nil
}

// WriteFile copies a reader to a file of the guest, named by its absolute path, of at most 100 MiB, and makes its
// parents. It starts the machine if it does not run.
func (c *Client) WriteFile(ctx context.Context, name, file string, in io.Reader) (FileWritten, error) {
	target, err := filePath(name, file)
	if err != nil {
		return FileWritten{}, err
	}
	return ask[FileWritten](ctx, c, call{method: http.MethodPut, path: target, body: in}, maxAnswer)
}

// filePath returns the path of a guest's file in the API.
func filePath(name, file string) (string, error) {
	if !path.IsAbs(file) || file != path.Clean(file) || file == "/" || strings.ContainsRune(file, 0) {
		return "", Errorf(CodeBadRequest, "%q is not the absolute path of a file without . and ..", file)
	}
	segments := strings.Split(file, "/")
	for i, segment := range segments {
		segments[i] = url.PathEscape(segment)
	}
	return machinePath(name, "/files"+strings.Join(segments, "/"))
}

// Health says how the server is, and what it is.
func (c *Client) Health(ctx context.Context) (Health, error) {
	return ask[Health](ctx, c, call{method: http.MethodGet, path: "/health"}, maxAnswer)
}

// Ready returns nil if the server can act on requests.
func (c *Client) Ready(ctx context.Context) error { return c.command(ctx, http.MethodGet, "/readyz") }

// Identity says on which node the server is. Servers of nodes have it, and smolvm itself does not.
func (c *Client) Identity(ctx context.Context) (Identity, error) {
	return ask[Identity](ctx, c, call{method: http.MethodGet, path: IdentityPath}, maxErrorBody)
}

// IdentityPath is that of Client.Identity.
const IdentityPath = "/api/v1/identity"

// Identity is the node of a server.
type Identity struct {
	// NodeName is the name of the Node, and NodeUID its UID; empty if the server does not know it.
	NodeName string `json:"nodeName"`
	NodeUID  string `json:"nodeUID,omitempty"`
}

// Drain stops all machines. Their records and disks stay.
func (c *Client) Drain(ctx context.Context) error { return c.command(ctx, http.MethodPost, "/drain") }

// command makes a request whose answer counts by its status.
func (c *Client) command(ctx context.Context, method, target string) error {
	answer, err := c.send(ctx, call{method: method, path: target})
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// Capacity returns what the machines have been given and what they use.
func (c *Client) Capacity(ctx context.Context) (Capacity, error) {
	return ask[Capacity](ctx, c, call{method: http.MethodGet, path: "/capacity"}, maxAnswer)
}
