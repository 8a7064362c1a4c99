// Package spiceclient opens the main channel of a SPICE server, as a viewer does, to find out who is admitted. It shows
// nothing (https://www.spice-space.org/spice-protocol.html, "Channel establishing").
package spiceclient

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // G505: the protocol demands it
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// ErrRefused says that the server does not admit the password.
var ErrRefused = errors.New("the SPICE server refuses the password")

const (
	magic       = "REDQ"
	major       = 2
	minor       = 2
	mainChannel = 1
	// authSelection and authSPICE are capabilities of both sides: a password that is encrypted with the server's key.
	authSelection, authSPICE = 0, 1
	permissionDenied         = 7
	publicKeySize            = 162
)

// header begins the first message of each side.
type header struct {
	Magic        [4]byte
	Major, Minor uint32
	Size         uint32
}

// hello is the first message of the client, with its capabilities.
type hello struct {
	ConnectionID            uint32
	ChannelType, ChannelID  uint8
	CommonCaps, ChannelCaps uint32
	CapsOffset              uint32
	CommonCapabilities      uint32
}

// reply is the first message of the server, without its capabilities.
type reply struct {
	Error                   uint32
	PublicKey               [publicKeySize]byte
	CommonCaps, ChannelCaps uint32
	CapsOffset              uint32
}

// Connect opens the main channel. It returns nil if the server admits the password, and ErrRefused if it does not. The
// connection stays open.
func Connect(connection net.Conn, password string) error {
	h := hello{ChannelType: mainChannel, CommonCaps: 1, CapsOffset: 18, CommonCapabilities: 1<<authSelection | 1<<authSPICE}
	var message bytes.Buffer
	head := header{Major: major, Minor: minor, Size: uint32(binary.Size(h))} //nolint:gosec // G115: 22
	copy(head.Magic[:], magic)
	if err := errors.Join(binary.Write(&message, binary.LittleEndian, head), binary.Write(&message, binary.LittleEndian, h)); err != nil {
		return err
	}
	if _, err := connection.Write(message.Bytes()); err != nil {
		return err
	}
	key, err := readReply(connection)
	if err != nil {
		return fmt.Errorf("greet the SPICE server: %w", err)
	}
	//nolint:gosec // G401: the protocol demands SHA-1
	ticket, err := rsa.EncryptOAEP(sha1.New(), rand.Reader, key, append([]byte(password), 0), nil)
	if err != nil {
		return err
	}
	answer := append(binary.LittleEndian.AppendUint32(nil, authSPICE), ticket...)
	if _, err := connection.Write(answer); err != nil {
		return err
	}
	var result uint32
	switch err := binary.Read(connection, binary.LittleEndian, &result); {
	case err != nil:
		return err
	case result == permissionDenied:
		return ErrRefused
	case result != 0:
		return fmt.Errorf("the SPICE server answers with the error %d", result)
	}
	return nil
}

// readReply returns the server's key.
func readReply(connection io.Reader) (*rsa.PublicKey, error) {
	var head header
	if err := binary.Read(connection, binary.LittleEndian, &head); err != nil {
		return nil, err
	}
	const most = 4096
	if string(head.Magic[:]) != magic || head.Size > most {
		return nil, fmt.Errorf("the reply begins with %q and has %d bytes", head.Magic, head.Size)
	}
	content := make([]byte, head.Size)
	if _, err := io.ReadFull(connection, content); err != nil {
		return nil, err
	}
	var r reply
	if err := binary.Read(bytes.NewReader(content), binary.LittleEndian, &r); err != nil {
		return nil, err
	}
	if r.Error != 0 {
		return nil, fmt.Errorf("the SPICE server answers with the error %d", r.Error)
	}
	key, err := x509.ParsePKIXPublicKey(r.PublicKey[:])
	if err != nil {
		return nil, err
	}
	public, ok := key.(*rsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("the server's key is a %T", key)
	}
	return public, nil
}
