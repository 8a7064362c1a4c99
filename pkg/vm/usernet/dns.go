package usernet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// portDNS is where the gateway passes on questions (RFC 1035, section 4.2).
	portDNS = 53
	// queryTimeout is how long an answer may take. Guests ask again after 5 seconds (resolv.conf(5)).
	queryTimeout = 5 * time.Second
	// queryIdle is how long the guest may be silent before its connection or pair of addresses is forgotten.
	queryIdle = 10 * time.Second
)

// nextResolver is how long a resolver is waited for before the next one is asked as well.
const nextResolver = time.Second

// Reasons for a refusal of a question.
const (
	noResolvers    = "the guest has no resolvers"
	oddQuery       = "not a question that is passed on"
	tooManyQueries = "too many questions of the guest"
)

// isResolver reports whether the guest asks the gateway for a name.
func (n *Network) isResolver(to netip.AddrPort) bool {
	return to.Addr() == n.options.Gateway && to.Port() == portDNS && n.context.Err() == nil
}

// takeQueries answers the questions that the guest sends from one port by UDP.
func (n *Network) takeQueries(request *udp.ForwarderRequest) {
	queue := new(waiter.Queue)
	endpoint, problem := request.CreateEndpoint(queue)
	if problem != nil {
		return
	}
	inside := gonet.NewUDPConn(queue, endpoint)
	ctx, s := n.fromGuest.begin(n.context, netip.Addr{})
	begun := n.carry(func() {
		defer n.fromGuest.ended(s)
		stop := context.AfterFunc(ctx, func() { _ = inside.Close() })
		defer stop()
		var asking sync.WaitGroup
		n.readQueries(ctx, s, inside, &asking)
		asking.Wait()
		_ = inside.Close()
	})
	if !begun {
		n.fromGuest.ended(s)
		_ = inside.Close()
	}
}

// readQueries reads questions until the guest is silent. A guest asks for both kinds of addresses at the same time, so
// they are answered at the same time.
func (n *Network) readQueries(ctx context.Context, s *session, inside net.Conn, asking *sync.WaitGroup) {
	datagram := make([]byte, maxQuery+1)
	for {
		if err := inside.SetReadDeadline(time.Now().Add(queryIdle)); err != nil {
			return
		}
		length, err := inside.Read(datagram)
		if err != nil {
			return
		}
		n.fromGuest.use(s)
		query := bytes.Clone(datagram[:length])
		answer, pass := n.admitQuery(UDP, query)
		if pass {
			asking.Go(func() { reply(inside, n.passQuery(ctx, UDP, query)) })
		} else {
			reply(inside, answer)
		}
	}
}

// reply sends an answer, if there is one. A datagram may be lost.
func reply(to io.Writer, answer []byte) {
	if answer != nil {
		_, _ = to.Write(answer)
	}
}

// answerQueries answers the questions that the guest sends by TCP, one after the other.
func (n *Network) answerQueries(request *tcp.ForwarderRequest, to netip.AddrPort) {
	if len(n.options.Resolvers) == 0 {
		n.refuse(TCP, to, noResolvers)
		request.Complete(true)
		return
	}
	queue := new(waiter.Queue)
	endpoint, problem := request.CreateEndpoint(queue)
	request.Complete(problem != nil)
	if problem != nil {
		return
	}
	guest := newInside(queue, endpoint)
	stop := context.AfterFunc(n.context, guest.Abort)
	defer stop()
	for {
		_ = guest.SetDeadline(time.Now().Add(queryIdle))
		query, err := readMessage(guest, maxQuery)
		if err != nil {
			break
		}
		answer, pass := n.admitQuery(TCP, query)
		if pass {
			answer = n.passQuery(n.context, TCP, query)
		}
		_ = guest.SetDeadline(time.Now().Add(queryIdle))
		if answer == nil || writeMessage(guest, answer) != nil {
			break
		}
	}
	guest.finish()
}

// admitQuery decides whether a question is passed on; then one of the queries is taken. Otherwise it returns the answer,
// or nothing to what is no question at all. The guest may have written anything.
func (n *Network) admitQuery(protocol string, query []byte) (answer []byte, pass bool) {
	to := netip.AddrPortFrom(n.options.Gateway, portDNS)
	asked, err := parseQuery(query)
	reason, code := "", dnsmessage.RCodeRefused
	switch {
	case err != nil:
		n.refuse(protocol, to, oddQuery)
		return nil, false
	case len(n.options.Resolvers) == 0:
		reason = noResolvers
	case !asked.isPlain():
		reason = oddQuery
	case !n.queries.take():
		reason, code = tooManyQueries, dnsmessage.RCodeServerFailure
	default:
		return nil, true
	}
	n.refuse(protocol, to, reason)
	return asked.answer(code), false
}

// passQuery returns the answer of a resolver to a question, and gives back one of the queries.
func (n *Network) passQuery(ctx context.Context, protocol string, query []byte) []byte {
	defer n.queries.give()
	answer, err := n.ask(ctx, protocol, query)
	if answer != nil {
		return answer
	}
	n.log.V(1).Info("no resolver answers a question of the guest", "error", err.Error())
	asked, err := parseQuery(query)
	if err != nil {
		return nil
	}
	return asked.answer(dnsmessage.RCodeServerFailure)
}

// errUseless says that a resolver has answered that it cannot tell.
var errUseless = errors.New("the resolver has no answer")

// ask asks the first resolver, and while it does not answer or has no useful answer, the next one as well. If none has
// a useful answer, it returns the last one that came.
func (n *Network) ask(ctx context.Context, protocol string, query []byte) (answer []byte, err error) {
	type result struct {
		answer []byte
		err    error
	}
	var asked sync.WaitGroup
	defer asked.Wait()
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	results := make(chan result, len(n.options.Resolvers))
	waiting, patience := 0, time.NewTicker(nextResolver)
	defer patience.Stop()
	for rest := n.options.Resolvers; ; {
		if len(rest) > 0 {
			resolver := rest[0]
			rest = rest[1:]
			waiting++
			asked.Go(func() {
				answer, err := askOne(ctx, protocol, resolver, query)
				results <- result{answer, err}
			})
			patience.Reset(nextResolver)
		}
		select {
		case got := <-results:
			waiting--
			if got.answer != nil {
				answer = got.answer
			}
			if err = got.err; err == nil || waiting == 0 && len(rest) == 0 {
				return answer, err
			}
		case <-patience.C:
		case <-ctx.Done():
			return answer, errors.Join(err, ctx.Err())
		}
	}
}

// askOne sends a question to a resolver and returns its answer. It may return an answer together with errUseless.
func askOne(ctx context.Context, protocol string, resolver netip.AddrPort, query []byte) ([]byte, error) {
	asked, err := parseQuery(query)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, protocol, resolver.String())
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", resolver, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	send, receive := writeMessage, func() ([]byte, error) { return readMessage(conn, maxMessage) }
	if protocol == UDP {
		datagram := make([]byte, maxDatagram+1)
		send = func(to io.Writer, query []byte) error { _, err := to.Write(query); return err }
		receive = func() ([]byte, error) { length, err := conn.Read(datagram); return datagram[:length], err }
	}
	if err := send(conn, query); err != nil {
		return nil, fmt.Errorf("asking %s: %w", resolver, err)
	}
	for {
		answer, err := receive()
		if err != nil {
			return nil, fmt.Errorf("waiting for the answer of %s: %w", resolver, err)
		}
		if fits, code := asked.fits(answer); fits {
			if code == dnsmessage.RCodeServerFailure || code == dnsmessage.RCodeRefused {
				err = fmt.Errorf("%w: %s: %s", errUseless, resolver, code)
			}
			return answer, err
		}
	}
}
