package cli

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// logNode returns a node with two pods with the label app=web, and a third pod in another namespace.
func logNode(t *testing.T) *servertest.Node {
	n, _ := servertest.Start(t)
	for _, name := range []string{"a", "b", "c"} {
		p := n.Pod(name, now, "app", "side").DeepCopy()
		p.Labels = map[string]string{"app": "web"}
		if name == "c" {
			p.Namespace = "other"
		}
		n.Put(p)
		n.Log(t, name+"-app", "one", "two of "+name)
		n.Log(t, name+"-side", "side of "+name)
	}
	return n
}

func TestLogsOfSeveral(t *testing.T) {
	n := logNode(t)
	check(t, n, run(t, n, "", "logs", "a", "b", "--tail=1"), 0, "[pod/a/app] two of a\n[pod/b/app] two of b\n", "")
	check(t, n, run(t, n, "", "logs", "-l", "app=web", "--tail=1"), 0, "[pod/a/app] two of a\n[pod/b/app] two of b\n", "")
	check(t, n, run(t, n, "", "logs", "-l", "app=web", "-A", "--tail=1", "-c", "side"), 0,
		"[pod/default/a/side] side of a\n[pod/default/b/side] side of b\n[pod/other/c/side] side of c\n", "")
	check(t, n, run(t, n, "", "logs", "--all-pods", "--prefix=false", "--tail=1"), 0, "two of a\ntwo of b\n", "")
	check(t, n, run(t, n, "", "logs", "a", "side"), 0, "side of a\n", "")
	check(t, n, run(t, n, "", "logs", "a", "none"), ExitNotFound, "", "islet: pod default/a has no container \"none\": it has app, side\n")
	check(t, n, run(t, n, "", "logs", "a", "b", "--all-containers", "--tail=1"), 0,
		"[pod/a/app] two of a\n[pod/a/side] side of a\n[pod/b/app] two of b\n[pod/b/side] side of b\n", "")
	check(t, n, run(t, n, "", "logs", "-l", "no=such"), ExitNotFound, "", "islet: no pods match the labels no=such in namespace default\n")
	check(t, n, run(t, n, "", "logs", "-l", "app=web", "-n", "none"), ExitNotFound, "",
		"islet: no pods match the labels app=web in namespace none; there are 3 in others: use -A\n")
	n.Log(t, "a-app", strings.Split(strings.Repeat("x ", 20)+"x", " ")...)
	if got := run(t, n, "", "logs", "-l", "app=web"); strings.Count(got.out, "[pod/a/app] x\n") != selectorTail {
		t.Errorf("without --tail: %q", got.out)
	}
	for _, args := range [][]string{{}, {"a", "-l", "x=y"}, {"a", "--all-pods"}, {"-l", "app=web", "-f", "-A", "--max-log-requests=2"},
		{"a", "--max-log-requests=0"}, {"a", "--max-log-requests=1000"}} {
		if got := run(t, n, "", append([]string{"logs"}, args...)...); got.code != ExitUsage || got.out != "" {
			t.Errorf("%q: %+v", args, got)
		}
	}
	// An error of one log does not stop the others.
	if got := run(t, n, "", "logs", "a", "b", "-p"); got.code != 1 || strings.Count(got.err, "previous terminated container") != 2 ||
		!strings.Contains(got.err, "islet: pod default/a, container app: ") {
		t.Errorf("previous logs: %+v", got)
	}
}

// TestLogsFollowSeveral checks that the lines of several followed logs never mix, and that the command ends with the
// last container.
func TestLogsFollowSeveral(t *testing.T) {
	n := logNode(t)
	for _, id := range []string{"a-app", "b-app"} {
		n.Runtime.Exit(id)
	}
	got := run(t, n, "", "logs", "-f", "-l", "app=web", "--tail=-1")
	lines := map[string]int{}
	for line := range strings.Lines(got.out) {
		lines[line]++
	}
	if got.code != 0 || len(lines) != 4 || lines["[pod/a/app] two of a\n"] != 1 || lines["[pod/b/app] two of b\n"] != 1 {
		t.Errorf("%+v", got)
	}
}

// hostile is a log with control sequences that must not reach a terminal, and with a colour, which may.
const hostile = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J \x1b[6n \u009b2J \xff \x1bP+q\x1b\\ \x1b[1;32mgreen\ttab\n"

func TestLogFilter(t *testing.T) {
	want := "\x1b[31mred\x1b[0m ?]0;title? ?[2J ?[6n ?2J ? ?P+q?\\ \x1b[1;32mgreen\ttab"
	for cut := range len(hostile) + 1 {
		for strict, end := range map[bool]string{false: "\n\x1b[0m", true: "\x1b[0m\n"} {
			var out bytes.Buffer
			f := &logFilter{w: &out, strict: strict}
			io.WriteString(f, hostile[:cut])
			io.WriteString(f, hostile[cut:])
			f.finish()
			if out.String() != want+end {
				t.Fatalf("cut at %d, strict %t: %q", cut, strict, out.String())
			}
		}
	}
	for in, out := range map[string][2]string{ // without and with prefixes
		"50%\r100%\n": {"50%\r100%\n", "50%?100%\n"}, "a\r\n": {"a\r\n", "a\n"}, "é世\n": {"é世\n", "é世\n"},
		"\x1b[" + strings.Repeat("1", 100) + "m": {"?[" + strings.Repeat("1", 100) + "m", "?[" + strings.Repeat("1", 100) + "m"}, "\x1b[3": {"???", "???"},
	} {
		for i, strict := range []bool{false, true} {
			var got bytes.Buffer
			f := &logFilter{w: &got, strict: strict}
			io.WriteString(f, in)
			f.finish()
			if got.String() != out[i] {
				t.Errorf("%q, strict %t: %q", in, strict, got.String())
			}
		}
	}
}

func FuzzLogFilter(f *testing.F) {
	f.Add([]byte(hostile), 3)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		if cut < 0 || cut > len(in) {
			return
		}
		var out bytes.Buffer
		w := &logFilter{w: &out, strict: true}
		w.Write(in[:cut])
		w.Write(in[cut:])
		w.finish()
		text := out.String()
		for {
			i := strings.IndexByte(text, '\x1b')
			if i < 0 {
				return
			}
			n, complete := colourLength([]byte(text[i:]))
			if n < 3 || !complete {
				t.Fatalf("%q", out.String())
			}
			text = text[i+n:]
		}
	})
}

// TestLogsOnTerminal checks that islet logs filters a log if and only if the output is a terminal.
func TestLogsOnTerminal(t *testing.T) {
	n := logNode(t)
	n.Log(t, "a-app", strings.TrimSuffix(hostile, "\n"))
	if got := run(t, n, "", "logs", "a", "-c", "app", "--tail=1"); got.out != hostile {
		t.Errorf("to a file: %q", got.out)
	}
	master, slave := pty(t)
	code := make(chan int, 1)
	go func() {
		code <- Main(t.Context(), []string{"logs", "a", "-c", "app", "--tail=1"}, env(n, nil, slave, os.Stderr))
	}()
	buf, got := make([]byte, 1024), ""
	master.SetReadDeadline(time.Now().Add(time.Minute))
	for !strings.Contains(got, "\n") {
		k, err := master.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += string(buf[:k])
	}
	if c := <-code; c != 0 || !strings.Contains(got, "?]0;title?") || strings.Contains(got, "\x1b]") {
		t.Errorf("to a terminal: code %d, %q", c, got)
	}
}
