package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// visit calls f for each command that has flags, with its path.
func visit(list []command.Command, path []string, f func(c *command.Command, path []string)) {
	for i := range list {
		c := &list[i]
		path := append(path[:len(path):len(path)], c.Name)
		switch {
		case c.Hidden:
		case c.Setup != nil:
			f(c, path)
			visit(c.Sub, path, f)
		default:
			visit(c.Sub, path, f)
		}
	}
}

// words splits a line as a shell does, without expansions.
func words(t *testing.T, line string) (out []string) {
	t.Helper()
	quote := rune(0)
	word, open := "", false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, open = r, true
		case quote == 0 && r == ' ':
			if open {
				out = append(out, word)
			}
			word, open = "", false
		default:
			word, open = word+string(r), true
		}
	}
	if quote != 0 {
		t.Errorf("%s: a quotation mark is not closed", line)
	}
	if open {
		out = append(out, word)
	}
	return out
}

// parseLine parses a command line with the flags of its command. It returns the path of the command.
func parseLine(t *testing.T, line string) (path []string, flags *pflag.FlagSet) {
	t.Helper()
	all := words(t, line)
	if all[0] != "islet" {
		t.Errorf("%s: is not a command of islet", line)
		return nil, nil
	}
	all = all[1:]
	for list := commands(); len(all) > 0; {
		c := lookup(list, all[0])
		if c == nil {
			t.Errorf("%s: no command %q", line, all[0])
			return nil, nil
		}
		path, all = append(path, c.Name), all[1:]
		if runsSub(c, all) {
			list = c.Sub
			continue
		}
		flags, _ := parseFlags(c, &command.Tool{Env: command.Env{Getenv: func(string) string { return "" }}})
		if !c.IsAgent {
			if err := flags.Parse(all); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
		if c.Args == "" && flags.NArg() > 0 {
			t.Errorf("%s: the command takes no arguments", line)
		}
		return path, flags
	}
	t.Errorf("%s: the command needs a subcommand", line)
	return path, nil
}

// TestExamples checks that each command has examples in its help and its manual page, and that their flags exist. An example fails only
// because there is no agent, and never because of wrong usage. The files that examples write, such as the bundle of islet support, are in a
// temporary directory.
func TestExamples(t *testing.T) {
	source, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	before := fileNames(t, source)
	t.Chdir(t.TempDir())
	left := examples()
	pages := manPages()
	visit(commands(), nil, func(c *command.Command, path []string) {
		list := left[joinPath(path)]
		delete(left, joinPath(path))
		if len(list) == 0 {
			t.Errorf("islet %s has no examples", joinPath(path))
		}
		help := run(t, nil, "", append(slices.Clone(path), "--help")...)
		page := string(pages["islet-"+strings.Join(path, "-")+".1"])
		for _, e := range list {
			got, _ := parseLine(t, e.line)
			if joinPath(got) != joinPath(path) {
				t.Errorf("%q is an example of %q", e.line, joinPath(path))
			}
			if !strings.Contains(help.Out, "  # "+e.what+"\n  "+e.line+"\n") || !strings.Contains(page, escapeTroff(e.line)) {
				t.Errorf("%q is missing in the help or the manual page", e.line)
			}
			if c.IsAgent || slices.Contains([]string{"completion", "help", "version"}, c.Name) {
				continue
			}
			args := words(t, e.line)[1:]
			if got := run(t, &servertest.Node{Socket: filepath.Join(t.TempDir(), "none")}, "", args...); got.Code == command.ExitUsage {
				t.Errorf("%q is wrong usage: %s", e.line, got.Err)
			}
		}
	})
	for path := range left {
		t.Errorf("%q has examples but is not a command", path)
	}
	if after := fileNames(t, source); !slices.Equal(after, before) {
		t.Errorf("the examples have changed the directory of the sources: %q, before %q", after, before)
	}
}

func fileNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestHelpText checks that every flag that a command's help mentions exists, and that every flag is explained.
func TestHelpText(t *testing.T) {
	mentioned := regexp.MustCompile(`(?:^|[ (])--([a-z][a-z-]+)`)
	visit(commands(), nil, func(c *command.Command, path []string) {
		flags, _ := parseFlags(c, &command.Tool{Env: command.Env{Getenv: func(string) string { return "" }}})
		text := c.Summary + " " + c.Detail
		flags.VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("islet %s --%s has no explanation", joinPath(path), f.Name)
			}
			text += " " + f.Usage
		})
		for _, m := range mentioned.FindAllStringSubmatch(text, -1) {
			if flags.Lookup(m[1]) == nil && !c.IsAgent {
				t.Errorf("the help of islet %s mentions --%s, which does not exist", joinPath(path), m[1])
			}
		}
		if c.ArgsKind == command.TakesPods && c.Args == "" {
			t.Errorf("islet %s takes pods, but its usage line has no arguments", joinPath(path))
		}
	})
}

// TestHelpOfEveryCommand checks that every command has help, also a command for programs that the help of islet does not show.
func TestHelpOfEveryCommand(t *testing.T) {
	var all func(list []command.Command, path []string)
	all = func(list []command.Command, path []string) {
		for _, c := range list {
			path := append(slices.Clone(path), c.Name)
			if got := run(t, nil, "", append(path, "--help")...); got.Code != 0 || !strings.Contains(got.Out, "Usage:\n  islet "+joinPath(path)) {
				t.Errorf("islet %s --help: %+v", joinPath(path), got)
			}
			all(c.Sub, path)
		}
	}
	all(commands(), nil)
}

// TestSocketInHelp checks that the help and the manual page of a command show --socket only if the command connects to an agent, and that
// the other commands accept the flag.
func TestSocketInHelp(t *testing.T) {
	pages := manPages()
	for name, want := range map[string]bool{
		"pods": true, "bundle apply": true, "bundle node": true, "version": true,
		"bundle build": false, "bundle keys show": false, "completion": false,
	} {
		path := strings.Fields(name)
		help := run(t, nil, "", append(path[:len(path):len(path)], "--help")...).Out
		page := string(pages["islet-"+strings.Join(path, "-")+".1"])
		if page == "" || strings.Contains(help, "--socket") != want || strings.Contains(page, escapeTroff("--socket")) != want {
			t.Errorf("islet %s: %s\n%s", name, help, page)
		}
		if strings.Contains(help, "Flags:") != strings.Contains(help, " [flags]") {
			t.Errorf("islet %s: the usage line does not say whether there are flags: %s", name, help)
		}
	}
	if got := run(t, nil, "", "--socket=/none", "completion", "bash"); got.Code != command.ExitOK {
		t.Errorf("%+v", got)
	}
}

// TestDocumentedCommands checks that the flags of islet's commands in the documents exist.
func TestDocumentedCommands(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(err, "no documents")
	}
	line := regexp.MustCompile(`(?m)^    (?:sudo )?(?:bin/)?(islet [a-z][^#|>&\n]*)`)
	for _, name := range append(files, "../../README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range line.FindAllStringSubmatch(string(text), -1) {
			parseLine(t, strings.TrimSpace(m[1]))
		}
	}
}

// TestReadmeNamesCommands checks that the table of commands in the README has every command.
func TestReadmeNamesCommands(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Commands\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, c := range commands() {
		if named := regexp.MustCompile("`" + regexp.QuoteMeta(c.Name) + "[ `]"); !c.Hidden && !named.MatchString(table) {
			t.Errorf("the README does not name islet %s", c.Name)
		}
	}
}

func TestSuggestions(t *testing.T) {
	for word, want := range map[string]string{
		"stauts": "status", "lgos": "logs", "discribe": "describe", "evnets": "events", "imgaes": "images", "desc": "describe", "rstart": "restart",
		"port": "port-forward", "conf": "config", "wiat": "wait", "deleet": "delete",
		"foo": "", "run": "", "x": "", "e": "", "get-it": "", "create": "", "cx": "", "scale": "", "rollout": "", "edit": "",
	} {
		got := didYouMean(word, commands())
		if want == "" && got != ": see 'islet help'" || want != "" && !strings.Contains(got, `"`+want+`"`) {
			t.Errorf("%s: %s", word, got)
		}
	}
	for flag, want := range map[string]string{"--folow": "did you mean --follow?", "--tial=3": "did you mean --tail?", "--colour": ""} {
		got := run(t, nil, "", "logs", flag, "web")
		if got.Code != command.ExitUsage || strings.Contains(got.Err, "did you mean") != (want != "") || !strings.Contains(got.Err, want) {
			t.Errorf("%s: %+v", flag, got)
		}
	}
}

// TestHostileNames checks that control characters in names, labels, messages and file names never reach the output of a
// command.
func TestHostileNames(t *testing.T) {
	n, _ := servertest.Start(t)
	const bad = "e\x1b]0;title\x07\u009b\u202e"
	p := n.Pod("web", now, "app").DeepCopy()
	p.Name = "web" + bad
	p.Labels = map[string]string{"a" + bad: bad}
	p.Annotations["b"+bad] = bad
	p.Spec.NodeName, p.Spec.ServiceAccountName, p.Spec.PriorityClassName = bad, bad, bad
	p.Spec.Containers[0].Name, p.Spec.Containers[0].Image = "app"+bad, bad
	p.Spec.Containers[0].Command, p.Spec.Containers[0].WorkingDir = []string{bad}, bad
	p.Status.Reason, p.Status.Message = bad, bad
	p.Status.ContainerStatuses[0].Name, p.Status.ContainerStatuses[0].ImageID = "app"+bad, bad
	p.Status.ContainerStatuses[0].State.Running, p.Status.ContainerStatuses[0].Ready = nil, false
	n.Put(p)
	other := n.Pod("web2", now, "one", "two").DeepCopy()
	other.Name = "web2" + bad
	n.Put(other)
	file := filepath.Join(n.Dir, bad+".yaml")
	if err := os.WriteFile(file, []byte("bad: x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"status"}, {"pods"}, {"pods", "-o", "wide", "-A"}, {"pods", "-o", "name"}, {"pods", bad}, {"describe", "web" + bad}, {"describe", "web2"}, {"logs", "web" + bad},
		{"logs", "web2"}, {"logs", "--all-pods"}, {"logs", "web2", bad}, {"exec", "web2", "--", "x" + bad}, {"exec", "web" + bad, "--", "x"}, {"top"},
		{"top", "--containers"}, {"top", bad}, {"wait", "--timeout=0", "--for=Initialized", "--all"}, {"wait", "--timeout=1ms", "--for=Ready", "web2"}, {"wait", "--for=" + bad, "web2"},
		{"wait", "--timeout=1ms", "--for=jsonpath={" + bad + "}", "web2"}, {"apply", file}, {"apply", file + bad}, {"delete", bad}, {"delete", "--wait=false", "web2"}, {"restart", bad},
		{"images", "ls", "-o", "wide"}, {"images", "rm", bad}, {"images", "pull", bad}, {"images", "import", file + bad}, {"cp", "web2:/" + bad, file}, {"cp", file + bad, "web2:/x"},
		{"system", "df"}, {"events"}, {bad}, {"logs", "--" + bad, "x"}, {"port-forward", bad, "80"}, {"config", bad}, {"update", bad}, {"objects"}, {"__complete", "logs", ""},
	} {
		got := run(t, n, "", args...)
		if i := strings.IndexAny(got.Out+got.Err, "\x1b\x07\u009b\u202e"); i >= 0 {
			t.Errorf("%q: %q", args, got.Out+got.Err)
		}
	}
	n.Runtime.Streams.Wait()
}
