package vmrunner

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

const (
	// reportEvery is the shortest time between two reports.
	reportEvery = time.Second
	// reportTimeout is how long an operator may not read before its link is cut.
	reportTimeout = 30 * time.Second
)

// serveLink takes orders from an operator and reports to it until the link is cut, or the machine has ended.
func (r *Runner) serveLink(w http.ResponseWriter, request *http.Request) {
	if request.Header.Get("Upgrade") != vmconfig.LinkProtocol {
		http.Error(w, "this is a link: use kvm-operator runner link", http.StatusUpgradeRequired)
		return
	}
	connection, err := keeper.Accept(w, vmconfig.LinkProtocol)
	if err != nil {
		return
	}
	defer func() { _ = connection.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		r.takeOrders(connection)
	}()
	r.reportTo(ctx, connection)
}

// takeOrders takes orders until the link is cut, or an order cannot be understood.
func (r *Runner) takeOrders(from io.Reader) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, vmconfig.MaxLine)
	for lines.Scan() {
		order, err := vmconfig.DecodeOrder(lines.Bytes())
		if err != nil {
			r.log.Error("The link is cut", "error", err)
			return
		}
		r.tuner.order(order.Live)
	}
}

// reportTo reports at the beginning and after each change.
func (r *Runner) reportTo(ctx context.Context, to net.Conn) {
	for last := (vmconfig.Report{}); ; {
		report, state, changed := r.report()
		if !report.Same(last) {
			line, err := report.Encode()
			if err == nil {
				_ = to.SetWriteDeadline(time.Now().Add(reportTimeout))
				_, err = to.Write(line)
			}
			if err != nil {
				return
			}
			last = report
			// Changes in between are in the next report.
			pause(ctx, reportEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-state:
		case <-changed:
		}
	}
}

// report returns what the runner knows, and channels that are closed when it knows something else.
func (r *Runner) report() (report vmconfig.Report, state, changed <-chan struct{}) {
	known, state := r.Known()
	report = vmconfig.Report{State: string(known.State), Step: known.Step, Accelerator: known.Accelerator}
	changed = r.companions.report(&report)
	return report, state, changed
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
