package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/images"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

// completionScripts contains the completion scripts by shell. The scripts run islet __complete with the words of the line. The
// last word is at the cursor. The command prints one candidate per line.
var completionScripts = map[string]string{
	"bash": `_islet() {
	COMPREPLY=($(islet __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
	[ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -F _islet islet
`,
	"zsh": `#compdef islet
_islet() {
	local -a candidates
	candidates=(${(f)"$(islet __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
	if (( ${#candidates} )); then compadd -- $candidates; else _files; fi
}
compdef _islet islet
`,
	"fish": `function __islet_complete
	set -l words (commandline -opc) (commandline -ct)
	islet __complete -- $words[2..-1] 2>/dev/null
end
complete -c islet -a '(__islet_complete)'
`,
}

func setupCompletion(t *command.Tool, _ *pflag.FlagSet) command.Runner {
	return func(_ context.Context, args []string) error {
		if len(args) != 1 || completionScripts[args[0]] == "" {
			return command.Usage("completion needs a shell: bash, zsh or fish")
		}
		_, err := fmt.Fprint(t.Out, completionScripts[args[0]])
		return err
	}
}

// completeTimeout is the maximum time for a completion.
const completeTimeout = 2 * time.Second

func setupComplete(t *command.Tool, _ *pflag.FlagSet) command.Runner {
	return func(ctx context.Context, words []string) error {
		ctx, cancel := context.WithTimeout(ctx, completeTimeout)
		defer cancel()
		if len(words) == 0 {
			words = []string{""}
		}
		last := words[len(words)-1]
		for _, c := range listCandidates(ctx, t, commands(), words[:len(words)-1], last) {
			if strings.HasPrefix(c, last) {
				fmt.Fprintln(t.Out, printable.Line(c))
			}
		}
		return nil
	}
}

// listCandidates returns the possible words at the position of the cursor.
func listCandidates(ctx context.Context, t *command.Tool, list []command.Command, before []string, word string) []string {
	if len(before) == 0 {
		return commandNames(list)
	}
	c := lookup(list, before[0])
	if c == nil {
		return nil
	}
	if runsSub(c, before[1:]) || c.Sub != nil && len(before) == 1 && !strings.HasPrefix(word, "-") {
		return listCandidates(ctx, t, c.Sub, before[1:], word)
	}
	asking := &command.Tool{Env: t.Env, Out: t.Out}
	flags, _ := parseFlags(c, asking)
	flags.ParseErrorsWhitelist.UnknownFlags = true
	previous := before[len(before)-1]
	if kind := flagValue(flags, previous); kind != nil {
		flags.Parse(before[1 : len(before)-1])
		setDefaultSocket(asking)
		return flagCandidates(ctx, asking, kind.Name, flags.Args())
	}
	flags.Parse(before[1:])
	setDefaultSocket(asking)
	switch {
	case strings.HasPrefix(word, "-"):
		return flagNames(flags)
	case c.ArgsKind == command.TakesCommands:
		return commandNames(list)
	case c.Name == "completion":
		return []string{"bash", "zsh", "fish"}
	case c.ArgsKind == command.TakesPods && (c.Name != "exec" || flags.NArg() == 0):
		if c.Name == "logs" && flags.NArg() == 1 {
			return flagCandidates(ctx, asking, "container", flags.Args())
		}
		return podNames(ctx, asking)
	case c.ArgsKind == command.TakesImages:
		return imageTags(ctx, asking)
	}
	return nil
}

func setDefaultSocket(t *command.Tool) { t.Socket = cmp.Or(t.Socket, api.DefaultSocket) }

func commandNames(list []command.Command) (out []string) {
	for _, c := range list {
		if !c.Hidden {
			out = append(out, c.Name)
		}
	}
	return out
}

func flagNames(flags *pflag.FlagSet) (out []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			out = append(out, "--"+f.Name)
		}
	})
	return append(out, "--help")
}

// flagValue returns the flag that the given word names, if the next word is the flag's value. Otherwise it
// returns nil.
func flagValue(flags *pflag.FlagSet, word string) *pflag.Flag {
	var f *pflag.Flag
	switch {
	case strings.Contains(word, "="):
	case strings.HasPrefix(word, "--"):
		f = flags.Lookup(word[2:])
	case len(word) >= 2 && word[0] == '-':
		f = flags.ShorthandLookup(word[len(word)-1:])
	}
	if f == nil || f.NoOptDefVal != "" {
		return nil
	}
	return f
}

// flagCandidates returns candidates for a flag's value.
func flagCandidates(ctx context.Context, t *command.Tool, flag string, args []string) []string {
	switch flag {
	case "output":
		return []string{"wide", "json", "yaml", "name"}
	case "for":
		return []string{"Ready", "Created", "Deleted", "condition=", "jsonpath="}
	case "sort-by":
		return []string{"cpu", "memory"}
	case "container":
		if len(args) > 0 {
			if pod, err := client.FindPod(ctx, t, client.PodFlag{}, args[0]); err == nil {
				return client.ContainerNames(pod)
			}
		}
	case "namespace":
		var out []string
		pods, _ := client.ListPods(ctx, t)
		for _, p := range pods {
			out = append(out, p.Namespace)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	return nil
}

// podNames returns the names of the pods. The namespace precedes the name of a pod, except for pods in the
// default namespace.
func podNames(ctx context.Context, t *command.Tool) (out []string) {
	pods, _ := client.ListPods(ctx, t)
	for _, p := range pods {
		if p.Namespace == "default" {
			out = append(out, p.Name)
		} else {
			out = append(out, p.Namespace+"/"+p.Name)
		}
	}
	return out
}

func imageTags(ctx context.Context, t *command.Tool) (out []string) {
	var all []api.Image
	if client.Get(ctx, t, api.PathImages, &all) == nil {
		for _, i := range all {
			out = append(out, images.Names(i)...)
		}
	}
	return out
}
