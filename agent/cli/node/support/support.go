package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/node"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
	"github.com/islet-edge/islet/internal/redaction"
)

// Write sets up islet support.
func Write(t *command.Tool, _ *pflag.FlagSet) command.Runner {
	return func(ctx context.Context, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return command.Usage("islet support needs one file, such as islet-support.tar.gz, or - for standard output")
		}
		b := &supportBundle{Tool: t, redactor: redaction.New()}
		b.collect(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := b.writeTo(args[0]); err != nil {
			return err
		}
		out := t.Stderr
		if args[0] != "-" {
			out = t.Out
			fmt.Fprintf(out, "wrote %s\n", printable.Line(args[0]))
		}
		fmt.Fprint(out, b.report())
		return nil
	}
}

// maxPart is the maximum size of a file of a support archive in bytes.
const maxPart = 4 << 20

// A supportBundle is the archive of islet support. Each of its files has passed the redactor.
type supportBundle struct {
	*command.Tool
	redactor *redaction.Redactor
	files    []supportFile
	missing  []string // the parts that could not be read, each with the reason
}

type supportFile struct {
	name    string
	data    []byte
	removed map[string]int // the number of removed secrets of each kind
}

// collect reads all parts. It notes each part that cannot be read, and continues with the others, because the bundle is also
// needed if the agent does not run.
func (b *supportBundle) collect(ctx context.Context) {
	var st api.Status
	hasStatus := b.note("status", client.Get(ctx, b.Tool, api.PathStatus, &st))
	b.addVersions(&st)
	if hasStatus {
		b.addStatus(&st)
	}
	b.addEvents(ctx)
	for _, part := range []struct{ name, path string }{{"configuration.json", api.PathConfiguration}, {"settings.json", api.PathSettings}} {
		var v any
		if b.note(part.name, client.Get(ctx, b.Tool, part.path, &v)) {
			if c, ok := v.(map[string]any); ok && part.path == api.PathConfiguration {
				b.dropDocuments(c)
			}
			b.addValue(part.name, v)
		}
	}
	if b.Doctor != nil {
		var out, errors bytes.Buffer
		b.Doctor(ctx, []string{"--all", "--socket=" + b.Socket}, &out, &errors)
		b.addText("doctor.txt", out.String()+errors.String())
	}
	read := b.AgentLog
	if read == nil {
		read = func(ctx context.Context) ([]byte, error) { return readAgentLog(ctx, b.Tool) }
	}
	text, err := read(ctx)
	if b.note("agent.log", err) {
		b.addText("agent.log", b.withoutOutput(string(text)))
	}
}

// note records why a part is missing. It returns true if err is nil.
func (b *supportBundle) note(name string, err error) bool {
	if err != nil {
		b.missing = append(b.missing, name+": "+b.redactor.Text(printable.Line(err.Error())))
	}
	return err == nil
}

// addVersions adds the versions of islet, of the kernel, and of an agent whose status is known.
func (b *supportBundle) addVersions(st *api.Status) {
	text := "islet " + b.Version + "\n"
	if st.Version != "" {
		text += fmt.Sprintf("agent %s\nruntime %s\n", st.Version, node.RuntimeText(st.Runtime))
	}
	var host unix.Utsname
	if unix.Uname(&host) == nil {
		text += fmt.Sprintf("kernel %s %s %s\n", unix.ByteSliceToString(host.Release[:]), unix.ByteSliceToString(host.Machine[:]),
			unix.ByteSliceToString(host.Version[:]))
	}
	b.addText("versions.txt", text+"time "+time.Now().UTC().Format(time.RFC3339)+"\n")
}

// outputOf is the kind of a text that a container, a hook or a probe has written. Such a text may contain any secret, so the bundle
// omits it.
const outputOf = "output of a container"

func (b *supportBundle) addStatus(st *api.Status) {
	for i := range st.Troubles {
		t := &st.Troubles[i]
		t.Message = b.redactor.Before(t.Message, "; ", outputOf)
		if t.LastLine != "" {
			b.redactor.Remove(outputOf)
			t.LastLine = redaction.Mark
		}
	}
	for i := range st.Events {
		b.redactEvent(&st.Events[i])
	}
	st.Attention = api.FindAttention(st)
	b.addValue("status.json", decoded(st))
	var text bytes.Buffer
	for _, a := range st.Attention {
		fmt.Fprintf(&text, "%s\n", printable.Line(a.String()))
	}
	b.addText("attention.txt", text.String())
}

func (b *supportBundle) addEvents(ctx context.Context) {
	var events []api.Event
	if !b.note("events", client.Get(ctx, b.Tool, api.PathEvents, &events)) {
		return
	}
	for i := range events {
		b.redactEvent(&events[i])
	}
	b.addValue("events.json", decoded(events))
}

// redactEvent removes the output of probes from an event. Events of hooks contain no output.
func (b *supportBundle) redactEvent(e *api.Event) {
	if e.Reason == "Unhealthy" || e.Reason == "ProbeWarning" {
		e.Message = b.redactor.Before(e.Message, ": ", outputOf)
	}
}

// withoutOutput removes the output of hooks and probes from a log. The lines of the log are text or JSON.
func (b *supportBundle) withoutOutput(log string) string {
	lines := strings.SplitAfter(log, "\n")
	for i, line := range lines {
		for _, known := range []struct {
			message string
			keys    []string
		}{{"hook failed", []string{" error=", `"error":`}}, {"probe", []string{" result=", `"result":`}}} {
			for _, key := range known.keys {
				if strings.Contains(line, known.message) && strings.Contains(line, key) {
					lines[i] = b.redactor.Before(strings.TrimSuffix(line, "\n"), key, outputOf) + "\n"
				}
			}
		}
	}
	return strings.Join(lines, "")
}

// dropDocuments removes the documents of sent configurations. The bundle does not need them, because
// settings.json contains the settings that are in force.
func (b *supportBundle) dropDocuments(c map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		ref, ok := c[name].(map[string]any)
		if !ok {
			continue
		}
		for _, document := range []string{"kubelet", "edge"} {
			if _, ok := ref[document]; ok {
				b.redactor.Remove("document of a configuration")
				ref[document] = redaction.Mark
			}
		}
	}
}

// decoded returns a value of the API as maps and lists.
func decoded(v any) (out any) {
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return err.Error()
	}
	return out
}

func (b *supportBundle) addValue(name string, v any) {
	data, err := json.MarshalIndent(b.redactor.Value(v), "", "  ")
	if b.note(name, err) {
		b.add(name, append(data, '\n'))
	}
}

func (b *supportBundle) addText(name, text string) { b.add(name, []byte(b.redactor.Text(text))) }

func (b *supportBundle) add(name string, data []byte) {
	if cut := len(data) - maxPart; cut > 0 {
		data = append([]byte("(the beginning is left out)\n"), data[cut:]...)
	}
	b.files = append(b.files, supportFile{name, data, b.redactor.Counts()})
}

// report lists the files of the bundle and the missing parts. For each file it lists the kinds of
// secrets that were removed.
func (b *supportBundle) report() string {
	var out strings.Builder
	for _, f := range b.files {
		fmt.Fprintf(&out, "%s (%s)\n", f.name, api.FormatSize(int64(len(f.data))))
		for _, kind := range slices.Sorted(maps.Keys(f.removed)) {
			fmt.Fprintf(&out, "    redacted: %s, %d times\n", printable.Line(kind), f.removed[kind])
		}
	}
	for _, text := range b.missing {
		fmt.Fprintf(&out, "missing: %s\n", printable.Line(text))
	}
	out.WriteString("Names of pods, images, files and hosts, and addresses are not redacted. Read the files before you send them.\n")
	return out.String()
}

// writeTo writes the archive to a new file that only the file's owner can read. If path is "-", it writes
// to standard output.
func (b *supportBundle) writeTo(path string) error {
	if path == "-" {
		return b.write(b.Out)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists: choose another name", path)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(b.write(f), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(path))
	}
	return nil
}

func (b *supportBundle) write(w io.Writer) error {
	z := gzip.NewWriter(w)
	archive := tar.NewWriter(z)
	now := time.Now()
	for _, f := range append(slices.Clone(b.files), supportFile{name: "redacted.txt", data: []byte(b.report())}) {
		head := &tar.Header{Name: "islet-support/" + f.name, Mode: 0o600, Size: int64(len(f.data)), ModTime: now, Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(head); err != nil {
			return err
		}
		if _, err := archive.Write(f.data); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), z.Close())
}
