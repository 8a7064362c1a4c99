package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
)

// row is one line of the view: a condition or a pod.
type row struct {
	what    string // "condition" or "pod"
	name    string
	columns []string
}

var headings = map[string]string{
	"condition": "CONDITION\tSTATUS\tREASON\tMESSAGE",
	"pod":       "NODE POD\tPHASE\tREADY\tHOST\tIP",
}

// rows is what a view shows of an observation.
func rows(o observation) []row {
	if o.config == nil {
		return nil
	}
	var all []row
	for _, c := range conditions(o.config) {
		all = append(all, row{"condition", c.kind, []string{c.status, c.reason, c.message}})
	}
	for i := range o.pods {
		pod := &o.pods[i]
		phase, ready := string(pod.Status.Phase), "not ready"
		if pod.DeletionTimestamp != nil {
			phase = "Terminating"
		}
		if podReady(pod) {
			ready = "ready"
		}
		all = append(all, row{"pod", pod.Name, []string{phase, ready, pod.Spec.NodeName, pod.Status.PodIP}})
	}
	return all
}

// view shows rows: on a terminal as a table that is drawn anew in place, else as one line for each change.
type view struct {
	out      io.Writer
	began    time.Time
	size     func() (width, height int) // nil when the output is no terminal
	drawn    int                        // lines of the table on the screen
	previous map[string]row
}

func newView(out *os.File, began time.Time) *view {
	v := &view{out: out, began: began, previous: map[string]row{}}
	if fd := int(out.Fd()); term.IsTerminal(fd) {
		v.size = func() (int, int) {
			width, height, err := term.GetSize(fd)
			if err != nil {
				return 80, 24
			}
			return width, height
		}
	}
	return v
}

func (v *view) show(rows []row) {
	if v.size == nil {
		for _, line := range v.changes(rows) {
			fmt.Fprintf(v.out, "%s  %s\n", v.elapsed(), line)
		}
		return
	}
	width, height := v.size()
	lines := append(table(rows), v.elapsed()+"  Ctrl-C stops the demo and cleans up")
	lines = lines[max(0, len(lines)-height+1):]
	if v.drawn > 0 {
		fmt.Fprintf(v.out, "\x1b[%dA\x1b[J", v.drawn) // up to the table's first line; clear from there
	}
	for _, line := range lines {
		fmt.Fprintln(v.out, shorten(line, width))
	}
	v.drawn = len(lines)
}

// leave leaves the table on the screen as it is; the next one is drawn below.
func (v *view) leave() { v.drawn = 0 }

func (v *view) elapsed() string { return fmt.Sprintf("%6.1fs", time.Since(v.began).Seconds()) }

// changes describes how rows differ from those shown before.
func (v *view) changes(rows []row) []string {
	var lines []string
	current := map[string]row{}
	for _, r := range rows {
		key := r.what + " " + r.name
		current[key] = r
		text := strings.Join(strings.Fields(strings.Join(r.columns, " ")), " ")
		if before, ok := v.previous[key]; !ok || strings.Join(before.columns, "\t") != strings.Join(r.columns, "\t") {
			lines = append(lines, key+": "+text)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(v.previous)) {
		if _, ok := current[key]; !ok {
			lines = append(lines, key+": gone")
		}
	}
	v.previous = current
	return lines
}

// table lays rows out in columns, one block for each kind.
func table(rows []row) []string {
	var text strings.Builder
	for _, what := range []string{"condition", "pod"} {
		columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
		fmt.Fprintln(columns, headings[what])
		shown := 0
		for _, r := range rows {
			if r.what == what {
				fmt.Fprintln(columns, r.name+"\t"+strings.Join(r.columns, "\t"))
				shown++
			}
		}
		if shown == 0 {
			fmt.Fprintln(columns, "(none)")
		}
		columns.Flush()
		fmt.Fprintln(&text)
	}
	return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
}

// shorten cuts a line to the width of the terminal: a line that wraps would break the drawing in place.
func shorten(line string, width int) string {
	runes := []rune(line)
	if len(runes) <= width {
		return line
	}
	return string(runes[:max(0, width-1)]) + "…"
}
