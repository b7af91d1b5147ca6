package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/command"
)

// setupMan sets up islet man, which writes the manual pages.
func setupMan(t *command.Tool, _ *pflag.FlagSet) command.Runner {
	return func(_ context.Context, args []string) error {
		if len(args) != 1 {
			return command.Usage("man needs the directory to write the pages to")
		}
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return err
		}
		for name, text := range manPages() {
			if err := os.WriteFile(filepath.Join(args[0], name), text, 0o644); err != nil {
				return err
			}
		}
		return nil
	}
}

// manPages returns the pages by file name. The pages depend only on the table of commands, so the output is
// reproducible.
func manPages() map[string][]byte {
	pages := map[string][]byte{}
	var list, all bytes.Buffer
	addManPages(pages, &list, commands(), nil)
	writeHeading(&all, "islet", "run and manage a Kubernetes node")
	writeSection(&all, "SYNOPSIS", ".B islet\n.I COMMAND\n[flags]\n.br\n.B islet agent\n[flags]\n")
	writeSection(&all, "DESCRIPTION", escapeTroff("islet makes a Linux machine a Kubernetes node: one program that is "+
		"kubelet, container runtime and pod network. "+
		"Its commands connect to the unix socket of the agent on this machine, and need root. "+
		"'islet --help-flags' shows the flags of the agent, which are a kubelet's and its own.")+"\n")
	writeSection(&all, "COMMANDS", list.String())
	writeSection(&all, "EXIT STATUS",
		escapeTroff("0 done, 1 failed, 2 wrong usage, 3 agent not reachable, 4 not found; exec returns the exit code of its command.")+"\n")
	writeSection(&all, "ENVIRONMENT", ".TP\n.B ISLET_SOCKET\n"+escapeTroff("the agent's unix socket (default /run/islet/islet.sock)")+
		"\n.TP\n.B NO_COLOR\n"+escapeTroff("when set, no colours on a terminal")+"\n")
	pages["islet.1"] = all.Bytes()
	return pages
}

func addManPages(pages map[string][]byte, list *bytes.Buffer, from []command.Command, path []string) {
	for _, c := range from {
		if c.Hidden {
			continue
		}
		path := append(path[:len(path):len(path)], c.Name)
		if c.Sub != nil {
			addManPages(pages, list, c.Sub, path)
		}
		if c.Setup == nil {
			continue
		}
		page := "islet-" + strings.Join(path, "-")
		pages[page+".1"] = manPage(&c, page, path)
		fmt.Fprintf(list, ".TP\n.BR %s (1)\n%s\n", escapeTroff(page), escapeTroff(c.Summary))
	}
}

func manPage(c *command.Command, name string, path []string) []byte {
	var b bytes.Buffer
	writeHeading(&b, name, c.Summary)
	set, _ := parseFlags(c, &command.Tool{Env: command.Env{Getenv: func(string) string { return "" }}})
	synopsis := ".B " + escapeTroff("islet "+joinPath(path)) + "\n"
	if set.HasAvailableFlags() {
		synopsis += "[flags]\n"
	}
	if c.Args != "" {
		synopsis += ".I " + escapeTroff(c.Args) + "\n"
	}
	writeSection(&b, "SYNOPSIS", synopsis)
	text := escapeTroff(strings.ToUpper(c.Summary[:1])+c.Summary[1:]+".") + "\n"
	if c.ArgsKind == command.TakesPods {
		text += ".PP\n" + escapeTroff(podHelp) + "\n"
	}
	if c.Detail != "" {
		text += ".PP\n" + escapeTroff(c.Detail) + "\n"
	}
	if len(c.Aliases) > 0 {
		text += ".PP\n" + escapeTroff("Also: "+strings.Join(c.Aliases, ", ")+".") + "\n"
	}
	writeSection(&b, "DESCRIPTION", text)
	var flags bytes.Buffer
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		kind, what := pflag.UnquoteUsage(f)
		names := "--" + f.Name
		if f.Shorthand != "" {
			names = "-" + f.Shorthand + ", " + names
		}
		if kind != "" {
			names += " " + kind
		}
		fmt.Fprintf(&flags, ".TP\n.B %s\n%s\n", escapeTroff(names), escapeTroff(what))
	})
	if flags.Len() > 0 {
		writeSection(&b, "OPTIONS", flags.String())
	}
	if text := manExamples(path); text != "" {
		writeSection(&b, "EXAMPLES", text)
	}
	writeSection(&b, "SEE ALSO", ".BR islet (1)\n")
	return b.Bytes()
}

func writeHeading(b *bytes.Buffer, name, what string) {
	fmt.Fprintf(b, ".TH %s 1 \"\" \"islet\" \"islet\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(escapeTroff(name)),
		escapeTroff(name), escapeTroff(what))
}

func writeSection(b *bytes.Buffer, name, text string) { fmt.Fprintf(b, ".SH %s\n%s", name, text) }

// escapeTroff escapes text for troff.
func escapeTroff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "\n", " ").Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}
