package usernet

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

// resolver is a name server at the host's loopback.
type resolver struct {
	at    netip.AddrPort
	asked atomic.Int64
	// answer returns what is sent to a question, one message after the other.
	answer func(dnsmessage.Message) []dnsmessage.Message
}

func newResolver(t *testing.T, answer func(dnsmessage.Message) []dnsmessage.Message) *resolver {
	t.Helper()
	r := &resolver{answer: answer}
	for range 10 { // until both protocols have the same port
		datagrams, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		connections, err := net.Listen("tcp4", datagrams.LocalAddr().String())
		if err != nil {
			_ = datagrams.Close()
			continue
		}
		t.Cleanup(func() { _, _ = datagrams.Close(), connections.Close() })
		r.at = datagrams.LocalAddr().(*net.UDPAddr).AddrPort()
		go r.serveDatagrams(datagrams)
		go r.serveConnections(connections)
		return r
	}
	t.Fatal("there is no port for both protocols")
	return nil
}

func (r *resolver) serveDatagrams(socket net.PacketConn) {
	for query := make([]byte, maxMessage); ; {
		length, from, err := socket.ReadFrom(query)
		if err != nil {
			return
		}
		for _, answer := range r.answers(query[:length]) {
			_, _ = socket.WriteTo(answer, from)
		}
	}
}

func (r *resolver) serveConnections(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			query, err := readMessage(conn, maxMessage)
			if err != nil {
				return
			}
			answers := r.answers(query)
			for _, answer := range answers {
				_ = writeMessage(conn, answer)
			}
			if len(answers) == 0 {
				_, _ = io.Copy(io.Discard, conn) // silent until the other side has enough
			}
		}()
	}
}

func (r *resolver) answers(query []byte) [][]byte {
	r.asked.Add(1)
	var message dnsmessage.Message
	if err := message.Unpack(query); err != nil {
		return nil
	}
	var all [][]byte
	for _, answer := range r.answer(message) {
		packed, err := answer.Pack()
		if err != nil {
			return nil
		}
		all = append(all, packed)
	}
	return all
}

// knows answers with an address.
func knows(address string) func(dnsmessage.Message) []dnsmessage.Message {
	return func(m dnsmessage.Message) []dnsmessage.Message {
		m.Response = true
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 60},
			Body:   &dnsmessage.AResource{A: netip.MustParseAddr(address).As4()},
		}}
		return []dnsmessage.Message{m}
	}
}

// fails answers with a code.
func fails(code dnsmessage.RCode) func(dnsmessage.Message) []dnsmessage.Message {
	return func(m dnsmessage.Message) []dnsmessage.Message {
		m.Response, m.RCode = true, code
		return []dnsmessage.Message{m}
	}
}

func silent(dnsmessage.Message) []dnsmessage.Message { return nil }

// forged is preceded by messages that are no answers to the question.
func forged(m dnsmessage.Message) []dnsmessage.Message {
	right, id, name := knows("1.2.3.4")(m)[0], knows("6.6.6.6")(m)[0], knows("6.6.6.6")(m)[0]
	id.ID++
	name.Questions = []dnsmessage.Question{{Name: dnsmessage.MustNewName("other.example."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}
	return []dnsmessage.Message{m, id, name, right}
}

func asking(id uint16, change func(*dnsmessage.Message)) []byte {
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("Example.ORG."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	if change != nil {
		change(&m)
	}
	packed, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return packed
}

// names connects the guest to the gateway's port for questions.
func (g *guest) names(t *testing.T, protocol string) (net.Conn, error) {
	t.Helper()
	to := netip.AddrPortFrom(gatewayIP, 53)
	if protocol == TCP {
		conn, err := g.dial(t, to)
		return conn, err
	}
	address := full(to)
	return gonet.DialUDP(g.Stack, nil, &address, ipv4.ProtocolNumber)
}

// query sends a question and returns the answer.
func query(t *testing.T, conn net.Conn, protocol string, question []byte) (dnsmessage.Message, error) {
	t.Helper()
	var answer []byte
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if protocol == TCP {
		if err := writeMessage(conn, question); err != nil {
			return dnsmessage.Message{}, err
		}
		var err error
		if answer, err = readMessage(conn, maxMessage); err != nil {
			return dnsmessage.Message{}, err
		}
	} else {
		if _, err := conn.Write(question); err != nil {
			return dnsmessage.Message{}, err
		}
		answer = make([]byte, maxMessage)
		length, err := conn.Read(answer)
		if err != nil {
			return dnsmessage.Message{}, err
		}
		answer = answer[:length]
	}
	var message dnsmessage.Message
	err := message.Unpack(answer)
	return message, err
}

func TestGuestAsksForNames(t *testing.T) {
	closedPort := func(t *testing.T) netip.AddrPort { return netip.AddrPortFrom(localhost, unused(t)) }
	type answers = func(dnsmessage.Message) []dnsmessage.Message
	for name, test := range map[string]struct {
		first  answers // none: nothing listens there
		second answers
		want   string
		code   dnsmessage.RCode
		within time.Duration
	}{
		"the first resolver answers":      {first: knows("1.2.3.4"), second: knows("5.6.7.8"), want: "1.2.3.4", within: nextResolver},
		"the first one is not there":      {second: knows("5.6.7.8"), want: "5.6.7.8", within: nextResolver},
		"the first one is silent":         {first: silent, second: knows("5.6.7.8"), want: "5.6.7.8", within: queryTimeout},
		"the first one fails":             {first: fails(dnsmessage.RCodeServerFailure), second: knows("5.6.7.8"), want: "5.6.7.8", within: nextResolver},
		"the first one refuses":           {first: fails(dnsmessage.RCodeRefused), second: knows("5.6.7.8"), want: "5.6.7.8", within: nextResolver},
		"the name does not exist":         {first: fails(dnsmessage.RCodeNameError), second: knows("5.6.7.8"), code: dnsmessage.RCodeNameError, within: nextResolver},
		"all fail":                        {first: fails(dnsmessage.RCodeRefused), second: fails(dnsmessage.RCodeServerFailure), code: dnsmessage.RCodeServerFailure, within: nextResolver},
		"the only one that answers fails": {first: fails(dnsmessage.RCodeRefused), code: dnsmessage.RCodeRefused, within: nextResolver},
	} {
		for _, protocol := range []string{UDP, TCP} {
			t.Run(name+" by "+protocol, func(t *testing.T) {
				var resolvers []netip.AddrPort
				for _, answer := range []answers{test.first, test.second} {
					at := closedPort(t)
					if answer != nil {
						at = newResolver(t, answer).at
					}
					resolvers = append(resolvers, at)
				}
				g, _ := newGuest(t, func(o *Options) { o.Resolvers = resolvers })
				conn, err := g.names(t, protocol)
				if err != nil {
					t.Fatal(err)
				}
				for id := range uint16(2) { // a connection is used again
					began := time.Now()
					message, err := query(t, conn, protocol, asking(id, nil))
					if err != nil || message.ID != id || message.RCode != test.code || addressOf(message) != test.want {
						t.Fatalf("the answer is %v (%v)", message.GoString(), err)
					}
					if took := time.Since(began); took > test.within+2*time.Second {
						t.Errorf("it takes %s", took)
					}
				}
			})
		}
	}
}

func addressOf(m dnsmessage.Message) string {
	for _, record := range m.Answers {
		if body, ok := record.Body.(*dnsmessage.AResource); ok {
			return netip.AddrFrom4(body.A).String()
		}
	}
	return ""
}

// TestForgedAnswers: what does not answer the question does not get to the guest.
func TestForgedAnswers(t *testing.T) {
	at := newResolver(t, forged).at
	g, _ := newGuest(t, func(o *Options) { o.Resolvers = []netip.AddrPort{at} })
	for _, protocol := range []string{UDP, TCP} {
		conn, err := g.names(t, protocol)
		if err != nil {
			t.Fatal(err)
		}
		if message, err := query(t, conn, protocol, asking(7, nil)); err != nil || addressOf(message) != "1.2.3.4" {
			t.Errorf("by %s the answer is %v (%v)", protocol, message.GoString(), err)
		}
	}
}

// TestNoResolverAnswers: the guest gets an error, and the sockets are closed.
func TestNoResolverAnswers(t *testing.T) {
	at := newResolver(t, silent).at
	g, _ := newGuest(t, func(o *Options) { o.Resolvers = []netip.AddrPort{at, at, at} })
	before := openFiles(t)
	conn, err := g.names(t, UDP)
	if err != nil {
		t.Fatal(err)
	}
	message, err := query(t, conn, UDP, asking(7, nil))
	if err != nil || message.RCode != dnsmessage.RCodeServerFailure || message.ID != 7 || len(message.Questions) != 1 {
		t.Errorf("the answer is %v (%v)", message.GoString(), err)
	}
	eventually(t, "the sockets are closed", func() bool { return openFiles(t) <= before })
}

// TestQuestionsThatAreRefused never get to the resolver, and are reported.
func TestQuestionsThatAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		none    bool // without resolvers
		message []byte
		want    dnsmessage.RCode
		dropped bool
		reason  string
	}{
		"without resolvers":   {none: true, message: asking(7, nil), want: dnsmessage.RCodeRefused, reason: noResolvers},
		"an update":           {message: asking(7, func(m *dnsmessage.Message) { m.OpCode = 5 }), want: dnsmessage.RCodeRefused, reason: oddQuery},
		"a transfer":          {message: asking(7, func(m *dnsmessage.Message) { m.Questions[0].Type = typeAXFR }), want: dnsmessage.RCodeRefused, reason: oddQuery},
		"an answer":           {message: asking(7, func(m *dnsmessage.Message) { m.Response = true }), dropped: true, reason: oddQuery},
		"two questions":       {message: asking(7, func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) }), dropped: true, reason: oddQuery},
		"no question":         {message: asking(7, func(m *dnsmessage.Message) { m.Questions = nil }), dropped: true, reason: oddQuery},
		"something else":      {message: []byte("GET / HTTP/1.0\r\n\r\n"), dropped: true, reason: oddQuery},
		"a question too long": {message: slices.Concat(asking(7, nil), make([]byte, maxQuery)), dropped: true, reason: oddQuery},
	} {
		t.Run(name, func(t *testing.T) {
			r := newResolver(t, knows("1.2.3.4"))
			reported := make(chan string, 10)
			g, _ := newGuest(t, func(o *Options) {
				o.Refused = func(protocol string, to netip.AddrPort, reason string) {
					reported <- protocol + " " + to.String() + " " + reason
				}
				if !test.none {
					o.Resolvers = []netip.AddrPort{r.at}
				}
			})
			conn, err := g.names(t, UDP)
			if err != nil {
				t.Fatal(err)
			}
			if test.dropped {
				if _, err := conn.Write(test.message); err != nil {
					t.Fatal(err)
				}
			} else if message, err := query(t, conn, UDP, test.message); err != nil || message.RCode != test.want || message.ID != 7 {
				t.Errorf("the answer is %v (%v)", message.GoString(), err)
			}
			if got, want := <-reported, "udp 169.254.75.1:53 "+test.reason; got != want {
				t.Errorf("reported is %q instead of %q", got, want)
			}
			if conn, err = g.names(t, TCP); err == nil {
				var message dnsmessage.Message
				message, err = query(t, conn, TCP, test.message)
				if !test.dropped && (err != nil || message.RCode != test.want) {
					t.Errorf("the answer by TCP is %v (%v)", message.GoString(), err)
				}
			}
			if (test.dropped || test.none) && err == nil {
				t.Error("there is an answer by TCP")
			}
			if asked := r.asked.Load(); asked != 0 {
				t.Errorf("the resolver is asked %d times", asked)
			}
		})
	}
}

// TestQuestionsAreBounded: while as many questions are unanswered as may be, further ones fail at once.
func TestQuestionsAreBounded(t *testing.T) {
	r := newResolver(t, silent)
	g, n := newGuest(t, func(o *Options) { o.Resolvers = []netip.AddrPort{r.at} })
	n.queries = make(slots, 2)
	waiting, err := g.names(t, UDP)
	if err != nil {
		t.Fatal(err)
	}
	for id := range uint16(2) {
		if _, err := waiting.Write(asking(id, nil)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both are asked", func() bool { return r.asked.Load() == 2 })
	for _, protocol := range []string{UDP, TCP} {
		conn, err := g.names(t, protocol)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		message, err := query(t, conn, protocol, asking(7, nil))
		if err != nil || message.RCode != dnsmessage.RCodeServerFailure || time.Since(began) > queryTimeout/2 {
			t.Errorf("by %s the answer is %v (%v)", protocol, message.GoString(), err)
		}
	}
	if r.asked.Load() != 2 {
		t.Errorf("%d are asked", r.asked.Load())
	}
}

func TestResolversThatCannotBe(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.1:53")
	for name, resolvers := range map[string][]netip.AddrPort{
		"too many":    {at, at, at, at},
		"no address":  {{}},
		"no port":     {netip.MustParseAddrPort("127.0.0.1:0")},
		"unspecified": {netip.MustParseAddrPort("0.0.0.0:53")},
	} {
		if n, err := Open(optionsOf(func(o *Options) { o.Resolvers = resolvers })); err == nil {
			t.Errorf("%s: the network is opened", name)
			_ = n.Close()
		}
	}
}

// FuzzQuestions: guests and resolvers may send anything.
func FuzzQuestions(f *testing.F) {
	f.Add(asking(7, nil), asking(7, func(m *dnsmessage.Message) { m.Response = true }))
	f.Add([]byte{}, make([]byte, 12))
	f.Fuzz(func(t *testing.T, message, reply []byte) {
		asked, err := parseQuery(message)
		if err != nil {
			if !errors.Is(err, errNoQuery) {
				t.Error(err)
			}
			return
		}
		answer := asked.answer(dnsmessage.RCodeRefused)
		if fits, code := asked.fits(answer); !fits || code != dnsmessage.RCodeRefused || len(answer) > len(message) {
			t.Errorf("%x is answered by %x", message, answer)
		}
		if fits, _ := asked.fits(reply); fits && (len(reply) < 12 || reply[0] != message[0] || reply[1] != message[1] || reply[2]&0x80 == 0) {
			t.Errorf("%x is said to answer %x", reply, message)
		}
	})
}
