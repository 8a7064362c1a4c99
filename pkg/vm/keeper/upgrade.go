package keeper

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
)

// Connect opens a connection for bytes in both directions to what the control socket serves at a path, by HTTP's upgrade
// to a protocol (RFC 9110, section 7.8).
func (c Client) Connect(ctx context.Context, path, protocol string) (io.ReadWriteCloser, error) {
	connection, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	reader, err := upgrade(connection, path, protocol)
	if err != nil {
		_ = connection.Close()
		return nil, fmt.Errorf("connecting to %s of the runner: %w", path, err)
	}
	return upgraded{connection, reader}, nil
}

func upgrade(connection net.Conn, path, protocol string) (*bufio.Reader, error) {
	if _, err := fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: runner\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", path, protocol); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(connection)
	response, err := http.ReadResponse(reader, nil) //nolint:bodyclose // what follows the header are the bytes, which the caller closes
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("the runner answers %s", response.Status)
	}
	return reader, nil
}

// Accept answers a request of Connect for a protocol. The connection is the caller's.
func Accept(w http.ResponseWriter, protocol string) (net.Conn, error) {
	connection, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: %s\r\nConnection: Upgrade\r\n\r\n", protocol); err != nil {
		_ = connection.Close()
		return nil, err
	}
	return upgraded{connection, buffered.Reader}, nil
}

// upgraded first reads what was buffered with the header.
type upgraded struct {
	net.Conn
	reader *bufio.Reader
}

func (u upgraded) Read(p []byte) (int, error) { return u.reader.Read(p) }
