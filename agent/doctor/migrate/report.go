package migrate

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/islet-edge/islet/internal/printable"
)

// A Report tells how islet takes a host over.
type Report struct {
	Found   []Program `json:"found"`
	Kept    []Note    `json:"kept"`      // what islet takes over, or what stays where it is
	Differs []Note    `json:"different"` // what is different under islet, or lost
	Files   []File    `json:"files"`     // the files that WriteFiles writes
	Steps   []Step    `json:"steps"`
	Back    []Step    `json:"back"`              // the way back, in order
	Skipped []string  `json:"skipped,omitempty"` // files that could not be read, with the reason
}

// A Program is a node agent, a container runtime or a container engine.
type Program struct {
	Name    string `json:"name"` // such as kubelet, k3s-agent, containerd
	What    string `json:"what"`
	Running bool   `json:"running"`
	AtBoot  bool   `json:"atBoot"`
}

// A Note is about a file, or about a key in a file. The key is a flag, a field or a setting; it may be empty.
type Note struct {
	File string `json:"file"`
	Key  string `json:"key,omitempty"`
	What string `json:"what"`
}

// A Step is an action of the administrator.
type Step struct {
	What     string   `json:"what"`
	Commands []string `json:"commands,omitempty"`
	Note     string   `json:"note,omitempty"`
}

// A File is a translated file. Its content is not part of a report, because it may have credentials.
type File struct {
	Path    string   `json:"path"` // relative to the directory of WriteFiles
	From    []string `json:"from"` // the files of the host
	content string
}

// Write prints a report as text. It replaces control characters, because a report quotes files.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	line := func(format string, args ...any) {
		fmt.Fprintln(&b, strings.TrimRight(printable.Line(fmt.Sprintf(format, args...)), " "))
	}
	if len(r.Found) == 0 {
		line("found no kubelet, k3s, podman or docker: there is nothing to migrate")
	}
	for _, p := range r.Found {
		state := "is not running"
		if p.Running {
			state = "is running"
		}
		if p.AtBoot {
			state += ", starts at boot"
		}
		line("found %s: %s; %s", p.Name, p.What, state)
	}
	notes := func(title string, list []Note) {
		if len(list) > 0 {
			fmt.Fprintf(&b, "\n%s\n", title)
		}
		for _, n := range list {
			where := n.File
			if n.Key != "" {
				where = strings.TrimPrefix(where+": "+n.Key, ": ")
			}
			line("  %s: %s", where, n.What)
		}
	}
	notes("What islet takes over, and what stays", r.Kept)
	notes("What is different or lost", r.Differs)
	if len(r.Files) > 0 {
		fmt.Fprintf(&b, "\nWhat --write=DIR writes into DIR\n")
	}
	for _, f := range r.Files {
		line("  %s from %s", f.Path, strings.Join(f.From, ", "))
	}
	steps := func(title string, list []Step) {
		if len(list) > 0 {
			fmt.Fprintf(&b, "\n%s\n", title)
		}
		for i, s := range list {
			line("%3d. %s", i+1, s.What)
			for _, c := range s.Commands {
				line("       %s", c)
			}
			if s.Note != "" {
				line("     (%s)", s.Note)
			}
		}
	}
	steps("Step by step", r.Steps)
	steps("The way back", r.Back)
	if len(r.Skipped) > 0 {
		fmt.Fprintf(&b, "\nNot read, so this report may lack something\n")
	}
	for _, s := range r.Skipped {
		line("  %s", s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// A Process is a process of the host that does not run islet.
type Process struct {
	PID  int
	Name string // as in /proc/PID/comm
	Root bool   // whether it runs as root
}

// A planner collects a report.
type planner struct {
	host    *Tree
	running []Process
	report  Report
	steps   [phases][]Step
	back    [phases][]Step
	config  registries // the settings of registries of all programs
	// generates is set if a step writes manifests into the directory output.
	generates bool
	claimed   []string // the claims that manifests define
	proxy     []flag   // the proxy of the former programs
	byHand    []flag   // variables of the proxy that the administrator must write
	direct    string   // host of the API server, if the former program has reached it without a proxy
	asKubelet bool     // islet's service is kubelet.service
}

func (p *planner) found(name, what string, processes ...string) {
	p.report.Found = append(p.report.Found, Program{name, what, p.process(processes...) != 0, p.startsAtBoot(name)})
}

// The functions that add to a report are not inlined, because they are called in many places.

//go:noinline
func (p *planner) keep(file, key, what string) {
	p.report.Kept = append(p.report.Kept, Note{file, key, what})
}

// differ adds a note about a difference, unless the report has this note.
//
//go:noinline
func (p *planner) differ(file, key, what string) {
	if n := (Note{file, key, what}); !slices.Contains(p.report.Differs, n) {
		p.report.Differs = append(p.report.Differs, n)
	}
}

// process returns the ID of a process with one of the names, or 0. It prefers a process of root, because a user may run a program with
// the same name.
//
//go:noinline
func (p *planner) process(names ...string) (id int) {
	for _, q := range p.running {
		switch known := slices.Contains(names, q.Name); {
		case known && q.Root:
			return q.PID
		case known && id == 0:
			id = q.PID
		}
	}
	return id
}
