package api

import (
	"fmt"
	"strings"
)

// Attention is a condition of the node that a person should look at.
type Attention struct {
	Text    string `json:"text"`
	Command string `json:"command,omitempty"` // a command that shows more about the condition, or ends it
}

// String returns the text with the command.
func (a Attention) String() string {
	if a.Command == "" {
		return a.Text
	}
	return a.Text + " -> " + a.Command
}

const (
	// lowDisk is the fraction of free space below which a file system needs attention.
	lowDisk = 0.1
	// maxAttention is the maximum number of conditions that FindAttention returns.
	maxAttention = 300
)

// FindAttention returns the conditions of a status that need attention. The conditions of the whole node come first, then the
// conditions of pods, manifests, images and disks. The status page, the command islet status and its exit code all use this list. If
// there are more than maxAttention conditions, the last element contains the number of the omitted ones.
func FindAttention(st *Status) []Attention {
	out := append(nodeAttention(st), podAttention(st)...)
	for _, p := range st.Problems {
		out = append(out, Attention{Text: p})
	}
	if n := len(out) - maxAttention; n > 0 {
		out = append(out[:maxAttention], Attention{Text: fmt.Sprintf("and %d more", n), Command: "islet status -o json"})
	}
	return out
}

// nodeAttention returns the conditions of the whole node.
func nodeAttention(st *Status) (out []Attention) {
	add := func(format string, args ...any) { out = append(out, Attention{Text: fmt.Sprintf(format, args...)}) }
	if !st.Runtime.Ready {
		add("the container runtime is not ready: %s", textOr(st.Runtime.Message, "no reason given"))
	}
	if !st.Network.Ready {
		add("the pod network is not ready: %s", textOr(st.Network.Message, "no reason given"))
	}
	for _, why := range st.NotReady {
		if st.Network.Message == "" || !strings.Contains(why, st.Network.Message) {
			add("the node is not ready: %s", why)
		}
	}
	if c := st.Cluster; c != nil {
		if c.Link == "Down" {
			add("there has been no link to the API server for %s (%s): %s; pods keep running", FormatAge(c.Since, st.Now), c.Reason,
				c.Message)
		}
		if until := c.ClientCertificate; !until.IsZero() && st.Now.After(until) {
			add("the client certificate expired %s ago", FormatAge(until, st.Now))
		}
	}
	if st.Store.Rebuilt {
		add("the database was damaged and has been rebuilt: %s",
			textOr(st.Store.Message, "pods that were applied by hand may be missing"))
	}
	return out
}

// podAttention returns the conditions of pods, manifests, images and disks.
func podAttention(st *Status) (out []Attention) {
	add := func(command, format string, args ...any) {
		out = append(out, Attention{Text: fmt.Sprintf(format, args...), Command: command})
	}
	for i := range st.Troubles {
		add(st.Troubles[i].Command, "%s", st.Troubles[i].Text())
	}
	if n := st.MoreTroubles; n > 0 {
		add("islet pods -A", "%d more like these", n)
	}
	for _, s := range st.Sources {
		for _, p := range s.Problems {
			add("", "%s", p.Text())
		}
	}
	for _, i := range st.Imports {
		if i.Error != "" {
			add("", "image import %s failed: %s", i.Ref, i.Error)
		}
	}
	for _, d := range st.Disks {
		if d.Total > 0 && float64(d.Free) < lowDisk*float64(d.Total) {
			add("", "the disk of %s is nearly full: %s of %s free", d.Path, FormatSize(d.Free), FormatSize(d.Total))
		}
	}
	return out
}

// Text describes a trouble in one sentence, without its command.
func (t *Trouble) Text() string {
	text := fmt.Sprintf("pod %s/%s: ", t.Namespace, t.Name)
	if t.Container != "" {
		text += "container " + t.Container + ": "
	}
	text += t.Reason
	if t.Message != "" {
		text += ": " + t.Message
	}
	if t.ExitCode != nil && !strings.Contains(t.Message, "exit code") {
		text += fmt.Sprintf("; its last exit code was %d", *t.ExitCode)
	}
	if t.LastLine != "" {
		text += fmt.Sprintf("; the last line of its log: %q", t.LastLine)
	}
	return text
}

// Text describes a problem in one sentence.
func (p *Problem) Text() string {
	text := p.Origin
	if p.Field != "" {
		text += ": " + p.Field
	}
	return strings.TrimPrefix(text+": "+p.Message, ": ")
}

func textOr(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}
