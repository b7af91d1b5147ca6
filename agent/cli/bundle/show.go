package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/printable"
)

// bundleView is the output of islet bundle show -o json.
type bundleView struct {
	ID string `json:"id"` // the digest of the contents manifest
	*bundle.Contents
	Files  []bundleEntry `json:"files"`
	Signed *time.Time    `json:"signed,omitempty"`
	// Signers are the IDs of the keys that the signatures name. They are not verified.
	Signers []string `json:"signers,omitempty"`
}

type bundleEntry struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Size   int64  `json:"size"`
	Digest string `json:"digest"`
}

func setupShow(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	output := flags.StringP("output", "o", "", "json or yaml")
	return func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			return command.Usage("bundle show needs one bundle: islet bundle show FILE")
		}
		l, b, err := openBundle(ctx, t, args[0], nil)
		if err != nil {
			return err
		}
		defer l.Close()
		v := bundleView{ID: b.ID.String(), Contents: b.Contents, Files: []bundleEntry{}}
		for _, f := range b.Files {
			v.Files = append(v.Files, bundleEntry{f.Name, fileType(f.MediaType), f.Size, f.Digest.String()})
		}
		if b.Signature != nil {
			v.Signed, v.Signers = &b.Signature.Time, b.Signature.Text.Signers()
		}
		if *output != "" {
			return terminal.PrintObject(t, *output, v)
		}
		printBundle(t, &v)
		return nil
	}
}

// fileType returns the kind of a file, such as manifest or sealed.
func fileType(mediaType string) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(mediaType, "application/vnd.islet.bundle."), ".")
	return kind
}

func printBundle(t *command.Tool, v *bundleView) {
	var head terminal.Table
	by := "nobody"
	if len(v.Signers) > 0 {
		by = fmt.Sprintf("%s (not verified), first at %s", strings.Join(v.Signers, ", "), bundle.FormatTime(*v.Signed))
	}
	head.AddRow("Name:", v.Name)
	head.AddRow("Number:", fmt.Sprint(v.Number))
	head.AddRow("Identity:", v.ID)
	head.AddRow("For:", v.For.Text())
	head.AddRow("Expires:", cmp.Or(v.Expires, "never"))
	head.AddRow("Platforms:", cmp.Or(strings.Join(v.Platforms, ", "), "all: it has no images"))
	head.AddRow("Size:", api.FormatSize(v.Size))
	head.AddRow("Signed by:", by)
	head.Print(t.Out)
	fmt.Fprintln(t.Out)
	var files terminal.Table
	files.AddRow("FILE", "TYPE", "SIZE")
	for _, f := range v.Files {
		files.AddRow(f.Name, f.Type, api.FormatSize(f.Size))
	}
	files.Print(t.Out)
	if len(v.Images) == 0 {
		return
	}
	fmt.Fprintln(t.Out)
	var images terminal.Table
	images.AddRow("IMAGE", "PLATFORM", "DIGEST")
	for _, i := range v.Images {
		for _, m := range i.Manifests {
			images.AddRow(i.Name, m.Platform, m.Digest.String())
		}
	}
	images.Print(t.Out)
}

func setupDiff(t *command.Tool, _ *pflag.FlagSet) command.Runner {
	return func(ctx context.Context, args []string) error {
		if len(args) != 2 {
			return command.Usage("bundle diff needs two bundles: islet bundle diff OLD NEW")
		}
		var both [2]*bundle.Bundle
		for i, name := range args {
			l, b, err := openBundle(ctx, t, name, nil)
			if err != nil {
				return err
			}
			defer l.Close()
			both[i] = b
		}
		if both[0].ID == both[1].ID {
			fmt.Fprintf(t.Out, "The bundles have the same contents: %s number %d, %s\n",
				both[0].Contents.Name, both[0].Contents.Number, both[0].ID)
			return nil
		}
		d, err := bundle.Diff(ctx, both[0], both[1])
		if err != nil {
			return err
		}
		for _, line := range d.Lines {
			fmt.Fprintln(t.Out, printable.Line(line))
		}
		fmt.Fprintf(t.Out, "%s are only in %s\n", api.FormatSize(d.Bytes), path.Base(args[1]))
		return nil
	}
}

// errNoInventory is the error of a program that cannot read manifests.
var errNoInventory = errors.New("this program cannot read manifests")
