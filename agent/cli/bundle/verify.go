package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/objects"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/build"
	"github.com/islet-edge/islet/internal/bundle/sealed"
	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/finding"
	"github.com/islet-edge/islet/internal/printable"
	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/internal/release"
)

// bundleCheck is a run of islet bundle verify.
type bundleCheck struct {
	keys      string
	threshold int
	node      string
	quiet     bool
}

func setupVerify(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	var c bundleCheck
	flags.StringVar(&c.keys, "keys", "",
		"a public key, or a file with a list of them: --threshold of them must have signed the bundle; without it, signatures are "+
			"not verified")
	flags.IntVar(&c.threshold, "threshold", 1, "how many of these keys must have signed the bundle")
	flags.StringVar(&c.node, "for", "", "a file that describes a node: also check whether this node can use the bundle")
	flags.BoolVarP(&c.quiet, "quiet", "q", false, "no progress")
	return func(ctx context.Context, args []string) error {
		switch {
		case len(args) != 1:
			return command.Usage("bundle verify needs one bundle: islet bundle verify FILE")
		case t.Inventory == nil || t.Check == nil:
			return errNoInventory
		}
		policy, err := c.policy()
		if err != nil {
			return err
		}
		var node *bundle.Node
		if c.node != "" {
			text, err := regular.Read(c.node, bundle.MaxFile)
			if err != nil {
				return missingFile(c.node, err)
			}
			if node, err = bundle.ParseNode(text); err != nil {
				return fmt.Errorf("%s: %w", c.node, err)
			}
		}
		l, b, err := openBundle(ctx, t, args[0], policy)
		if err != nil {
			return err
		}
		defer l.Close()
		bar := terminal.NewProgress(t, c.quiet)
		err = b.Verify(ctx, func(done, total int64) { bar.UpdateItem(filepath.Base(args[0]), "verifying", done, total) })
		bar.ClearBars()
		if err != nil {
			return err
		}
		return reportBundle(ctx, t, b, node, policy != nil)
	}
}

func (c *bundleCheck) policy() (*bundle.Policy, error) {
	if c.keys == "" {
		return nil, nil
	}
	if c.threshold < 1 {
		return nil, command.Usage("--threshold must be at least 1")
	}
	keys, err := parseKeys(c.keys)
	if err != nil {
		return nil, err
	}
	return &bundle.Policy{Keys: keys, Threshold: c.threshold, KeysName: "the keys of --keys"}, nil
}

// A bundleText is the decoded text of a bundle's files.
type bundleText struct {
	manifests []finding.File // also configurations
	inventory *bundle.Inventory
	sealed    []sealed.Document

	configurations []finding.File
	releases       []*release.Release // of islet
}

// readBundle reads the files of a bundle.
func readBundle(t *command.Tool, b *bundle.Bundle) (*bundleText, error) {
	x := &bundleText{}
	var pods []finding.File
	var objects []bundle.Object
	for _, f := range b.Files {
		if f.MediaType == bundle.MediaProgram {
			continue
		}
		data, err := b.ReadFile(f)
		if err != nil {
			return nil, err
		}
		file := finding.File{Name: f.Name, Data: data}
		switch f.MediaType {
		case bundle.MediaManifest:
			x.manifests, pods = append(x.manifests, file), append(pods, file)
		case bundle.MediaKubelet, bundle.MediaEdge:
			x.manifests, x.configurations = append(x.manifests, file), append(x.configurations, file)
		case bundle.MediaRelease:
			r, err := readRelease(b, f.Name, data)
			if err != nil {
				return nil, err
			}
			x.releases = append(x.releases, r)
		case bundle.MediaSealed:
			docs, err := sealed.Parse(data)
			if err != nil {
				return nil, fmt.Errorf("file %s: %w", f.Name, err)
			}
			more, err := build.SealedObjects(data)
			if err != nil {
				return nil, fmt.Errorf("file %s: %w", f.Name, err)
			}
			x.sealed, objects = append(x.sealed, docs...), append(objects, more...)
		}
	}
	var err error
	if x.inventory, err = t.Inventory(pods); err != nil {
		return nil, err
	}
	x.inventory.Objects = append(x.inventory.Objects, objects...)
	return x, nil
}

// readRelease returns a release of islet whose archive is in the bundle. It verifies no signature.
func readRelease(b *bundle.Bundle, name string, text []byte) (*release.Release, error) {
	r, err := release.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", name, err)
	}
	for _, f := range b.Files {
		switch {
		case f.MediaType != bundle.MediaProgram || f.Name+".release" != name:
		case f.Size != r.Size:
			return nil, fmt.Errorf("file %s: it has %d bytes, its release says %d", f.Name, f.Size, r.Size)
		default:
			return r, nil
		}
	}
	return nil, fmt.Errorf("file %s: the bundle has no archive for it", name)
}

// newerVersion returns the newest version of islet in a bundle that the node would try first, or "".
func (x *bundleText) newerVersion(node *bundle.Node) (newest string) {
	parts := strings.Split(node.Platform, "/")
	for _, r := range x.releases {
		newer, err := release.IsNewer(r.Version, cmp.Or(newest, node.Version))
		if err == nil && newer && len(parts) > 1 && parts[1] == r.Arch {
			newest = r.Version
		}
	}
	return newest
}

// reportBundle prints the problems of a bundle and a summary. The bytes of the bundle are already verified.
func reportBundle(ctx context.Context, t *command.Tool, b *bundle.Bundle, node *bundle.Node, signed bool) error {
	x, err := readBundle(t, b)
	if err != nil {
		return err
	}
	report := t.Check(x.manifests, nil)
	report.Findings = slices.DeleteFunc(report.Findings, func(f finding.Finding) bool {
		return f.Severity != finding.Error // the check does not know sealed Secrets and images; Missing below does
	})
	report.Omitted = 0
	objects.PrintFindings(t, t.Out, &report)
	wrong := b.Missing(x.inventory)
	if node != nil {
		wrong = append(wrong, b.Unfit(x.inventory, node, t.Now())...)
		wrong = append(wrong, sealedForOthers(x.sealed, node)...)
		runs, version := "runs", node.Version
		if newer := x.newerVersion(node); newer != "" {
			runs, version = "will run", newer
			fmt.Fprintf(t.Stderr, "Note: the node tries islet %s of the bundle first, if its keys for updates have signed it: fields of "+
				"configurations that the node does not know yet are not errors\n", newer)
		} else {
			unknown, err := unknownFields(t, x.configurations, node)
			if err != nil {
				return err
			}
			wrong = append(wrong, unknown...)
		}
		if version != t.Version {
			fmt.Fprintf(t.Stderr, "Note: the node %s islet %s: the fields of the manifests are checked with the rules of %s\n",
				runs, printable.Line(version), t.Version)
		}
	} else {
		noteExpiry(t, b.Contents)
	}
	for _, w := range wrong {
		fmt.Fprintln(t.Out, printable.Line(w))
	}
	text := fmt.Sprintf("%s number %d: %s, %s, %s, %s", b.Contents.Name, b.Contents.Number, api.FormatSize(b.Contents.Size),
		api.Pluralize(len(x.inventory.Pods), "pod"), api.Pluralize(len(x.inventory.Objects), "object"),
		api.Pluralize(len(b.Contents.Images), "image"))
	if node != nil {
		need, err := b.Need(ctx, node)
		if err != nil {
			return err
		}
		text += fmt.Sprintf("; node %s would fetch %s of %s (%d of %s)", node.Name, api.FormatSize(need.Fetched),
			api.FormatSize(need.Bytes), need.LayersAbsent, api.Pluralize(int(need.Layers), "layer"))
	}
	if !signed {
		text += "; signatures not verified (--keys)"
	}
	fmt.Fprintln(t.Out, printable.Line(text))
	if report.Errors > 0 || len(wrong) > 0 {
		return command.ExitWith(command.ExitFailed, nil)
	}
	return nil
}

// noteExpiry prints a note if no node will start to use a bundle.
func noteExpiry(t *command.Tool, c *bundle.Contents) {
	if c.IsExpired(t.Now()) {
		fmt.Fprintf(t.Stderr, "Note: the bundle has expired on %s: no node starts to use it\n", c.Expires)
	}
}

// unknownFields returns a line for each field of the configurations that the node's version of islet does not know.
func unknownFields(t *command.Tool, configurations []finding.File, node *bundle.Node) (lines []string, err error) {
	for _, c := range configurations {
		fields, err := node.UnknownFields(c.Name, c.Data)
		if err != nil {
			return nil, err
		}
		for _, f := range fields {
			lines = append(lines, fmt.Sprintf("%s: field %s: islet %s on node %s does not know it", c.Name, f, node.Version, node.Name))
		}
	}
	if len(configurations) > 0 && len(node.Fields) == 0 {
		fmt.Fprintf(t.Stderr, "Note: the description of node %s does not say which fields of configurations the node knows: "+
			"write it again with islet bundle node\n", printable.Line(node.Name))
	}
	return lines, nil
}

// sealedForOthers returns a line for each Secret that is not sealed for a node.
func sealedForOthers(docs []sealed.Document, node *bundle.Node) (lines []string) {
	for _, d := range docs {
		name := d.Metadata.Namespace + "/" + d.Metadata.Name
		switch {
		case node.Recipient == "":
			lines = append(lines, fmt.Sprintf("Secret %s is sealed, and the description of the node has no recipient: write it "+
				"again with islet bundle node", name))
		case !slices.Contains(d.Recipients, node.Recipient):
			lines = append(lines, fmt.Sprintf("Secret %s is not sealed for node %s (%s)", name, node.Name, node.Recipient))
		}
	}
	return lines
}

func setupSeal(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	to := flags.StringArray("to", nil, "the key of a node (age1...), or a file with one key per line; can be repeated")
	output := flags.StringP("output", "o", "", "the file to write")
	return func(_ context.Context, args []string) error {
		switch {
		case len(args) != 1 || len(*to) == 0:
			return command.Usage("bundle seal needs a manifest and the keys of nodes: islet bundle seal FILE --to KEY")
		case t.Secrets == nil:
			return errNoInventory
		}
		var lines []string
		for _, name := range *to {
			if strings.HasPrefix(name, "age1") {
				lines = append(lines, name)
				continue
			}
			text, err := regular.Read(name, bundle.MaxFile)
			if errors.Is(err, os.ErrNotExist) {
				return command.ExitWith(command.ExitNotFound,
					fmt.Errorf("--to: no file %s: name the key of a node (age1...), or a file with one key per line", name))

			}
			if err != nil {
				return err
			}
			lines = append(lines, string(text))
		}
		recipients, err := sealed.Recipients(strings.Join(lines, "\n"))
		if err != nil {
			return err
		}
		text, err := regular.Read(args[0], bundle.MaxFile)
		if err != nil {
			return missingFile(args[0], err)
		}
		secrets, err := t.Secrets(finding.File{Name: args[0], Data: text})
		if err != nil {
			return err
		}
		data, err := sealed.Seal(secrets, recipients)
		if err != nil {
			return err
		}
		name := *output
		if name == "" {
			name = strings.TrimSuffix(args[0], filepath.Ext(args[0])) + bundle.SealedSuffix
		}
		if name, err = outputFile(name); err != nil {
			return err
		}
		if err := durable.Write(name, data, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(t.Out, "%s: %s for %s\n", name, api.Pluralize(len(secrets), "Secret"), api.Pluralize(len(recipients), "node"))
		return nil
	}
}
