package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/printable"
	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/internal/rollout"
	"github.com/islet-edge/islet/internal/signed"
)

const (
	// maxNotes is the maximum number of nodes that are listed, and of reports that do not count.
	maxNotes = 40
	// maxKeyList is the maximum size of a file with the public keys of nodes, in bytes.
	maxKeyList = 16 << 20
)

// An office is one run of sign rollout.
type office struct {
	out          io.Writer
	now          time.Time
	nodes, pause string
	resume       bool
	keyFiles     []string
}

func runRollout(args []string, out io.Writer, now time.Time) error {
	o := office{out: out, now: now}
	flags := pflag.NewFlagSet("sign rollout", pflag.ContinueOnError)
	flags.StringVar(&o.nodes, "nodes", "", "a file with the public keys of nodes; a report of another key does not count")
	flags.StringArrayVar(&o.keyFiles, "key", nil, "a file with a private key that signs the index; can be repeated")
	flags.StringVar(&o.pause, "pause", "", "pause for this reason, until --resume: no node takes the version")
	flags.BoolVar(&o.resume, "resume", false, "end the pause, and accept the failures so far, in the index and in the reports")
	flags.SetOutput(out)
	flags.Usage = func() { fmt.Fprintf(out, "usage: %s\n%s", rolloutUsage, flags.FlagUsages()) }
	if err := flags.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return fmt.Errorf("%w\nusage: %s", err, rolloutUsage)
	}
	pauses := flags.Changed("pause")
	if flags.NArg() == 0 || o.resume && pauses || len(o.keyFiles) == 0 && (o.resume || pauses) {
		return errors.New("usage: " + rolloutUsage + "\n--pause and --resume need a --key")
	}
	if pauses && strings.TrimSpace(printable.Line(o.pause)) == "" { // an index without a reason is not paused
		return errors.New("--pause needs a reason")
	}
	return o.run(flags.Arg(0), flags.Args()[1:])
}

func (o *office) run(file string, reports []string) error {
	keys, err := readKeys(o.keyFiles)
	if err != nil {
		return err
	}
	if len(keys) > 0 {
		unlock, err := lock(file)
		if err != nil {
			return err
		}
		defer unlock()
	}
	x, err := readIndex(file, keys)
	if err != nil {
		return err
	}
	list, bad, err := o.readReports(reports)
	if err != nil {
		return err
	}
	count := x.Count(list)
	plan, changes, waits := o.next(x, count)
	if len(keys) > 0 && (len(changes) > 0 || x.Expires.Sub(o.now) < x.Valid.Duration/2) {
		if x, err = rollout.New(plan, o.now, x.Signed); err != nil {
			return err
		}
		x.Sign(keys...)
		if err := durable.Write(file, x.Bytes(), 0o644); err != nil {
			return err
		}
	}
	for _, c := range changes {
		if len(keys) == 0 {
			c = "with --key: " + c
		}
		fmt.Fprintln(o.out, c)
	}
	o.print(x, count)
	if waits != "" {
		fmt.Fprintf(o.out, "The next ring waits: %s\n", waits)
	}
	if o.resume && o.nodes == "" && len(list) > 0 {
		fmt.Fprintln(o.out, "Failures in the reports are not accepted: the keys of the nodes are not given (--nodes)")
	}
	if plan.Paused != "" && o.pause == "" {
		bad = slices.Insert(bad, 0, fmt.Sprintf("the rollout of version %s is paused: %s", plan.Version, plan.Paused))
	}
	if len(bad) == 0 {
		return nil
	}
	var text strings.Builder
	printNotes(&text, bad)
	return warning{errors.New(strings.TrimSpace(text.String()))}
}

// next returns the plan of the next index, descriptions of the changes, and the reason why the next ring does not open yet.
func (o *office) next(x *rollout.Index, c rollout.Count) (plan rollout.Plan, changes []string, waits string) {
	isKnown := o.nodes != ""
	switch {
	case o.resume:
		plan, changes = x.Resume(c, isKnown)
	case o.pause != "":
		plan, changes = x.Raise(c, isKnown)
		plan.Paused, changes = printable.Line(o.pause), append(changes, "paused")
	default:
		return x.Advance(c, isKnown, o.now)
	}
	return plan, changes, ""
}

// readReports reads the reports in files and directories. The notes say why a report does not count.
func (o *office) readReports(args []string) (reports []rollout.Report, notes []string, _ error) {
	known := map[string]bool{}
	if o.nodes != "" {
		text, err := regular.Read(o.nodes, maxKeyList)
		if err != nil {
			return nil, nil, err
		}
		keys, err := signed.ParseKeyList(o.nodes, text)
		if err != nil {
			return nil, nil, err
		}
		for _, k := range keys {
			known[k.ID()] = true
		}
	}
	for _, arg := range args {
		files, err := reportFiles(arg)
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			r, err := readReport(file)
			if err == nil && o.nodes != "" && !known[r.Key] {
				err = fmt.Errorf("it is signed by the key %s, which is not in %s", r.Key, o.nodes)
			}
			if err != nil {
				notes = append(notes, file+": "+err.Error())
				continue
			}
			reports = append(reports, r)
		}
	}
	return reports, notes, nil
}

// reportFiles returns a file, or the reports in a directory.
func reportFiles(name string) (files []string, _ error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".json") && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, filepath.Join(name, e.Name()))
		}
	}
	return files, err
}

// readReport reads the signed state of a node, and verifies its signature.
func readReport(file string) (r rollout.Report, err error) {
	text, err := regular.Read(file, bundle.MaxState)
	if err != nil {
		return r, err
	}
	var document bundle.SignedState
	if err := json.Unmarshal(text, &document); err != nil {
		return r, fmt.Errorf("it is not the state of a node: %w", err)
	}
	key, err := document.Verify()
	if err != nil {
		return r, err
	}
	r = rollout.Report{Key: key.ID(), State: &api.BundleState{}}
	if err := json.Unmarshal(document.State, r.State); err != nil {
		return r, fmt.Errorf("it is not the state of a node: %w", err)
	}
	return r, nil
}

// print prints the rings of an index, with the outcomes of nodes.
func (o *office) print(x *rollout.Index, c rollout.Count) {
	fmt.Fprintf(o.out, "Version %s, signed %s by %s, expires %s\n", x.Version, x.Signed.Format(time.RFC3339),
		strings.Join(x.Signers(), ", "), x.Expires.Format(time.RFC3339))
	out := tabwriter.NewWriter(o.out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(out, "RING\tSELECTOR\tPERCENT\tOPENED\tNODES\tSUCCEEDED\tNEEDED\tFAILED\tMAY FAIL")
	for i, r := range x.Rings {
		opened, n := "-", c.Rings[i]
		if !r.Opened.IsZero() {
			opened = r.Opened.Format(time.RFC3339)
		}
		fmt.Fprintf(out, "%s\t%s\t%d\t%s\t%d\t%d\t%d\t%d\t%d\n", r.Name, cmp.Or(printable.Line(r.Selector), "-"),
			cmp.Or(r.Percent, 100), opened, n.Nodes, n.Succeeded, r.MinSucceeded, max(n.Failed, r.Failed), r.MaxFailed)
	}
	if n := c.Rings[len(x.Rings)]; n.Nodes > 0 {
		fmt.Fprintf(out, "(none)\t-\t-\t-\t%d\t%d\t-\t%d\t-\n", n.Nodes, n.Succeeded, n.Failed)
	}
	out.Flush()
	printNotes(o.out, c.Notes)
}

func printNotes(out io.Writer, notes []string) {
	for i, note := range notes {
		if i == maxNotes {
			fmt.Fprintf(out, "and %d more\n", len(notes)-i)
			break
		}
		fmt.Fprintln(out, printable.Line(note))
	}
}
