package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/finding"
	"github.com/islet-edge/islet/internal/printable"
)

const (
	// maxChecked is the maximum number of files of a check. maxCheckedSize is the maximum total size of these
	// files.
	maxChecked     = 2000
	maxCheckedSize = 64 << 20
)

// Check sets up islet check.
func Check(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	var m manifestFlag
	m.declareFiles(flags)
	output := flags.StringP("output", "o", "", "json or yaml")
	strict := flags.Bool("strict", false, "exit with 1 also for warnings")
	quiet := flags.BoolP("quiet", "q", false, "print no summary")
	return func(ctx context.Context, args []string) error {
		m.files = append(m.files, args...)
		switch {
		case len(m.files) == 0:
			return command.Usage("check needs a file, a directory or a URL: islet check FILE")
		case t.Check == nil:
			return errors.New("this program cannot check files")
		}
		files, err := readAll(ctx, t, m.files)
		if err != nil {
			return err
		}
		report := t.Check(files, nil)
		if *output != "" {
			err = terminal.PrintObject(t, *output, report)
		} else {
			PrintFindings(t, t.Out, &report)
			if !*quiet {
				fmt.Fprintln(t.Out, summarizeReport(&report))
			}
		}
		if err == nil && (report.Errors > 0 || *strict && report.Warnings > 0) {
			return command.ExitWith(command.ExitFailed, nil)
		}
		return err
	}
}

// readAll reads files, the manifests in directories, and URLs. For the name -, it reads standard input. A file that is named twice
// is read once.
func readAll(ctx context.Context, t *command.Tool, names []string) (files []finding.File, err error) {
	size, seen := 0, map[string]bool{}
	add := func(name string, data []byte) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		size += len(data)
		if len(files) == maxChecked || size > maxCheckedSize {
			return fmt.Errorf("too many files: at most %d with %d MiB are checked at once", maxChecked, maxCheckedSize>>20)
		}
		files = append(files, finding.File{Name: name, Data: data})
		return nil
	}
	for _, name := range names {
		if !isURL(name) {
			m := manifestFlag{files: []string{name}}
			if err := m.readFiles(t.Stdin, add); err != nil {
				return nil, err
			}
			continue
		}
		data, err := t.Fetch(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("fetch %s: %w", withoutPassword(name), withoutURL(err))
		}
		if err := add(withoutPassword(name), data); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func isURL(name string) bool {
	return strings.HasPrefix(name, "https://") || strings.HasPrefix(name, "http://")
}

func withoutPassword(name string) string {
	u, err := url.Parse(name)
	if err != nil {
		return "URL"
	}
	return u.Redacted()
}

// withoutURL removes the method and the URL from an error of a request.
func withoutURL(err error) error {
	var wrong *url.Error
	if errors.As(err, &wrong) {
		return wrong.Err
	}
	return err
}

// PrintFindings prints a line for each finding. The lines have the format of compiler errors, so
// that editors can parse them.
func PrintFindings(t *command.Tool, w io.Writer, r *finding.Report) {
	colours := map[finding.Severity]terminal.Colour{finding.Error: terminal.Red, finding.Warning: terminal.Yellow}
	for _, f := range r.Findings {
		at := printable.Line(f.File)
		if f.Line > 0 {
			at = fmt.Sprintf("%s:%d", at, f.Line)
		}
		text := at + ": " + string(f.Severity)
		if terminal.InColour(t, w) {
			text = at + ": " + string(colours[f.Severity]) + string(f.Severity) + terminal.EndColour
		}
		for _, part := range []string{f.Object, f.Field, f.Message} {
			if part != "" {
				text += ": " + printable.Line(part)
			}
		}
		fmt.Fprintln(w, text)
	}
	if r.Omitted > 0 {
		fmt.Fprintf(w, "and %d more\n", r.Omitted)
	}
}

// summarizeReport returns a line such as "3 files with 2 pods and 1 object: 1 error, 2 warnings".
func summarizeReport(r *finding.Report) string {
	var content []string
	for _, part := range []struct {
		n    int
		what string
	}{{r.Pods, "pod"}, {r.Objects, "object"}, {r.Configurations, "configuration"}} {
		if part.n > 0 {
			content = append(content, api.Pluralize(part.n, part.what))
		}
	}
	text := api.Pluralize(r.Files, "file")
	if len(content) > 0 {
		text += " with " + strings.Join(content, " and ")
	}
	return fmt.Sprintf("%s: %s, %s", text, api.Pluralize(r.Errors, "error"), api.Pluralize(r.Warnings, "warning"))
}

// dryRun checks manifests with the rules of islet check, and with facts that the node provides. If the manifests have no errors, dryRun
// prints the changes that islet apply would make.
func dryRun(ctx context.Context, t *command.Tool, m *manifestFlag) error {
	var files []finding.File
	err := m.readFiles(t.Stdin, func(name string, data []byte) error {
		files = append(files, finding.File{Name: name, Data: data})
		return nil
	})
	if err != nil {
		return err
	}
	if t.Check != nil {
		if err := checkFirst(ctx, t, files); err != nil {
			return err
		}
	}
	var errs []error
	for _, f := range files {
		errs = append(errs, applyManifest(ctx, t, f.Name, f.Data, true, &applyWait{}))
	}
	return errors.Join(errs...)
}

// checkFirst prints the findings about the manifests of a dry run. If one of the findings is an error, checkFirst returns an error with
// the code ExitFailed.
func checkFirst(ctx context.Context, t *command.Tool, files []finding.File) error {
	node, err := askNode(ctx, t)
	if err != nil {
		return err
	}
	report := t.Check(files, node)
	PrintFindings(t, t.Stderr, &report)
	switch {
	case report.Errors > 0:
		return command.ExitWith(command.ExitFailed, nil)
	case report.Configurations > 0:
		return errors.New("apply takes manifests: try a configuration with 'islet config apply --dry-run FILE'")
	}
	return nil
}

// warnAbout prints, as warnings, the errors that islet check finds in a manifest that the agent has accepted, such as half a byte of
// memory.
func warnAbout(t *command.Tool, f finding.File) {
	if t.Check == nil {
		return
	}
	report := t.Check([]finding.File{f}, nil)
	report.Findings = slices.DeleteFunc(report.Findings, func(f finding.Finding) bool { return f.Severity != finding.Error })
	for i := range report.Findings {
		report.Findings[i].Severity = finding.Warning
	}
	report.Omitted = 0
	PrintFindings(t, t.Stderr, &report)
}

// askNode returns the facts about the node that a check needs.
func askNode(ctx context.Context, t *command.Tool) (*finding.Node, error) {
	var n finding.Node
	pods, err := client.ListPods(ctx, t)
	if err != nil {
		return nil, err
	}
	n.Pods = pods
	for _, part := range []struct {
		path string
		into any
	}{{api.PathObjects, &n.Objects}, {api.PathImages, &n.Images}} {
		err := client.Get(ctx, t, part.path, part.into)
		if command.CodeOf(err) == command.ExitNotFound { // the node has no such objects
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	applied := n.Objects[:0]
	for _, o := range n.Objects { // an applied pod can use only applied objects
		if o.Source == "local" {
			applied = append(applied, o)
		}
	}
	n.Objects = applied
	return &n, nil
}
