package usernet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// maxQuery is how long a question may be, in bytes. Usual ones are shorter than 512.
	maxQuery = 4 << 10
	// maxMessage is how long a message by TCP can be, in bytes.
	maxMessage = 1<<16 - 1
)

// Transfers of zones (RFC 5936, RFC 1995). A name server may allow them to this host.
const typeIXFR, typeAXFR dnsmessage.Type = 251, 252

// readMessage reads a message after its length (RFC 1035, section 4.2.2).
func readMessage(from io.Reader, most int) ([]byte, error) {
	var prefix [2]byte
	if _, err := io.ReadFull(from, prefix[:]); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint16(prefix[:]))
	if length > most {
		return nil, fmt.Errorf("a message has %d bytes and may have %d", length, most)
	}
	message := make([]byte, length)
	_, err := io.ReadFull(from, message)
	return message, err
}

func writeMessage(to io.Writer, message []byte) error {
	_, err := to.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)) //nolint:gosec // G115: a message is at most maxMessage long
	return err
}

// dnsQuestion is what the guest asks.
type dnsQuestion struct {
	dnsmessage.Header
	dnsmessage.Question
}

var errNoQuery = errors.New("not one question")

// parseQuery parses the beginning of a message with one question. It says nothing of what follows the question.
func parseQuery(message []byte) (dnsQuestion, error) {
	if len(message) > maxQuery {
		return dnsQuestion{}, errNoQuery
	}
	var parser dnsmessage.Parser
	header, err := parser.Start(message)
	if err != nil || header.Response {
		return dnsQuestion{}, errNoQuery
	}
	question, err := parser.Question()
	if err != nil {
		return dnsQuestion{}, errNoQuery
	}
	if _, err := parser.Question(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		return dnsQuestion{}, errNoQuery
	}
	return dnsQuestion{Header: header, Question: question}, nil
}

// isPlain reports whether this is a question for records. Other operations, such as updates (RFC 2136), may be allowed to
// this host, and the guest must not use its rights.
func (q dnsQuestion) isPlain() bool {
	return q.OpCode == 0 && q.Type != typeAXFR && q.Type != typeIXFR
}

// answer returns an answer without records.
func (q dnsQuestion) answer(code dnsmessage.RCode) []byte {
	message := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: q.ID, Response: true, OpCode: q.OpCode, RecursionDesired: q.RecursionDesired, RecursionAvailable: true, RCode: code,
		},
		Questions: []dnsmessage.Question{q.Question},
	}
	packed, err := message.Pack()
	if err != nil {
		return nil // a name that could be read can be written
	}
	return packed
}

// fits reports whether a message answers the question, and its code. Anything could arrive at the socket.
func (q dnsQuestion) fits(message []byte) (bool, dnsmessage.RCode) {
	var parser dnsmessage.Parser
	header, err := parser.Start(message)
	if err != nil || len(message) > maxMessage || !header.Response || header.ID != q.ID {
		return false, 0
	}
	question, err := parser.Question()
	if errors.Is(err, dnsmessage.ErrSectionDone) { // of a server that does not understand the question
		return header.RCode != dnsmessage.RCodeSuccess, header.RCode
	}
	return err == nil && question.Type == q.Type && question.Class == q.Class &&
		strings.EqualFold(question.Name.String(), q.Name.String()), header.RCode
}
