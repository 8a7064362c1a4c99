package runner

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// Runner runs one machine from its preparation to its end. It is used once.
type Runner struct {
	settings Settings
	log      *slog.Logger
	messages io.Writer
	board    board
	console  *console
	// released is closed when the machine need not be held.
	released chan struct{}
	release  sync.Once
	// live is the running QEMU, for requests from outside.
	mu   sync.Mutex
	live *guest
}

// New returns a Runner. The guest's console goes to output, QEMU's messages to messages, and the runner's own messages
// to log. None of them may block: see Outlet.
func New(settings Settings, log *slog.Logger, output, messages io.Writer) *Runner {
	r := &Runner{settings: settings, log: log, messages: messages, console: newConsole(output), released: make(chan struct{})}
	r.board.status = Status{Name: settings.Name}
	r.board.status.State, r.board.status.Since = StatePreparing, time.Now()
	return r
}

// Run runs the machine until it ends. When ctx ends, the machine is first held until it is released, then powered down,
// and finally killed, each within its timeout.
func (r *Runner) Run(ctx context.Context) End {
	end := r.run(ctx)
	r.enter(StateStopped, string(end.Reason))
	if err := WriteTermination(r.settings.TerminationLog, end, r.console.tail(consoleKept)); err != nil {
		r.log.Error("The reason of the end cannot be stored", "error", err)
	}
	return end
}

func (r *Runner) run(ctx context.Context) End {
	if err := r.settings.Validate(); err != nil {
		return End{Reason: ReasonSettingsInvalid, Message: err.Error()}
	}
	control, err := r.serveControl()
	if err != nil {
		return endOf(err)
	}
	defer r.close("closing the control socket", control)

	p, err := r.prepare(ctx)
	defer r.close("giving back what the machine was given", p)
	if err != nil {
		return r.prematureEnd(ctx, err)
	}
	g, err := r.boot(ctx, p)
	if err != nil {
		return r.prematureEnd(ctx, err)
	}
	return r.watch(ctx, g)
}

// prematureEnd is the end of a machine that never ran.
func (r *Runner) prematureEnd(ctx context.Context, err error) End {
	if ctx.Err() != nil {
		return End{Reason: ReasonPoweredDown, Message: "the machine was stopped before it was started"}
	}
	return endOf(err)
}

func (r *Runner) close(what string, c io.Closer) {
	if err := c.Close(); err != nil {
		r.log.Error("The runner leaves something behind", "while", what, "error", err)
	}
}

// enter changes the state; step describes what happens in it.
func (r *Runner) enter(state State, step string) {
	r.board.set(func(s *Status) {
		if s.State != state {
			s.State, s.Since = state, time.Now()
		}
		s.Step = step
	})
	r.log.Info(string(state), "step", step)
}

// Release releases a machine that is held, or will be. A second call has no effect.
func (r *Runner) Release() { r.release.Do(func() { close(r.released) }) }

// Status returns the machine's status, for which it asks QEMU, the guest's kubelet and, on a master, its API server.
func (r *Runner) Status(ctx context.Context) Status {
	status := r.board.get()
	if g := r.running(); g != nil {
		r.ask(ctx, g, &status)
	}
	return judge(status)
}

// ask asks all of them in parallel, so that a probe waits for only the slowest.
func (r *Runner) ask(ctx context.Context, g *guest, status *Status) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	var group sync.WaitGroup
	group.Go(func() { status.Kubelet = askKubelet(ctx, g, r.settings.Health) })
	group.Go(func() { status.API = askAPI(ctx, g, r.settings.API) })
	status.Machine, status.Answers = askMachine(ctx, g.talk())
	group.Wait()
}

// terminationSize is how much of a termination message the kubelet keeps, in bytes.
const terminationSize = 4096

// WriteTermination stores why a machine ended, and the last output of its console, for the kubelet. Without a path it
// does nothing.
func WriteTermination(path string, end End, console []byte) error {
	if path == "" {
		return nil
	}
	return os.WriteFile(path, []byte(terminationMessage(end, console)), 0o600)
}

// terminationMessage begins with the reason and contains as much of the console's end as fits. It becomes part of a
// pod's status, so it is valid text without the control characters of a terminal.
func terminationMessage(end End, console []byte) string {
	const heading = "\nconsole:\n"
	text := cutOff(plain(fmt.Sprintf("%s: %s", end.Reason, end.Message)), terminationSize/2) + "\n"
	tail := plain(string(console))
	room := terminationSize - len(text) - len(heading)
	for len(tail) > room {
		_, size := utf8.DecodeRuneInString(tail)
		tail = tail[size:]
	}
	if tail == "" {
		return text
	}
	return text + heading + tail
}

// cutOff shortens text to n bytes without splitting a character.
func cutOff(text string, n int) string {
	for len(text) > n {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// escapeSequence matches what moves a terminal's cursor or colors its text (ECMA-48, 5.4).
var escapeSequence = regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]`)

func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(escapeSequence.ReplaceAllString(text, ""), "\uFFFD"))
}
