package bundle

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/build"
	"github.com/islet-edge/islet/internal/bundle/remote"
	"github.com/islet-edge/islet/internal/clock"
	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/printable"
	"github.com/islet-edge/islet/internal/signed"
)

const (
	bundleHelp         = "Needs no agent and no root."
	bundleRegistryHelp = "A name such as oci://registry.example.com/kiosk:42 is a bundle in a registry. " +
		"The command uses the logins of docker and podman.\n"
)

// Commands returns the commands of islet bundle.
func Commands() []command.Command {
	return []command.Command{
		{Name: "build", Args: "DIR -o FILE|DIRECTORY|oci://REPOSITORY:TAG", Summary: "make a bundle of manifests and images",
			ArgsKind: command.TakesFiles, Setup: setupBuild, NoAgent: true,
			Detail: "DIR contains bundle.yaml, manifests/ and images/, and optionally kubelet.yaml, edge.yaml and islet/.\n" +
				"Building the same DIR again gives the same bytes. An output that ends with a slash, or is a directory, " +
				"becomes a directory.\n" + bundleRegistryHelp + bundleHelp},
		{Name: "lock", Args: "DIR", Summary: "record the digests of images that come from registries", ArgsKind: command.TakesFiles,
			Setup: setupLock, NoAgent: true,
			Detail: "Writes DIR/images.lock with the digest of each image that is in no archive in DIR/images. " +
				"islet bundle build then\nreads these images from their registries, by digest, with the logins of " +
				"docker and podman. Digests that are already in the file\nstay, unless --update is given.\n" + bundleHelp},
		{Name: "sign", Args: "FILE|DIRECTORY|oci://...", Summary: "sign a bundle", ArgsKind: command.TakesFiles,
			Setup: setupSign, NoAgent: true,
			Detail: "Adds one signature for each key. The bundle keeps its other signatures. Replaces the bundle, " +
				"unless --output is given.\nA registry can answer each request with another bundle, so a bundle in a registry needs " +
				"--identity, and --keys if it\nhas signatures already.\n" + bundleRegistryHelp + bundleHelp},
		{Name: "keys", Summary: "make and list the keys that sign bundles", Sub: keyCommands()},
		{Name: "show", Args: "FILE|DIRECTORY|oci://...", Summary: "show what a bundle contains", ArgsKind: command.TakesFiles,
			Setup: setupShow, NoAgent: true,
			Detail: "Does not verify signatures and does not read images: see islet bundle verify.\n" + bundleRegistryHelp + bundleHelp},
		{Name: "verify", Args: "FILE|DIRECTORY|oci://...", Summary: "check every byte of a bundle, and whether anything is missing",
			ArgsKind: command.TakesFiles, Setup: setupVerify, NoAgent: true,
			Detail: "Exits with 1 if something is wrong or missing.\n" + bundleRegistryHelp + bundleHelp},
		{Name: "diff", Args: "OLD NEW", Summary: "show what changes from one bundle to another", ArgsKind: command.TakesFiles,
			Setup: setupDiff, NoAgent: true,
			Detail: "Exits with 0 even if the bundles differ.\n" + bundleRegistryHelp + bundleHelp},
		{Name: "apply", Args: "FILE|DIRECTORY|URL|oci://...",
			Summary:  "run the pods of a bundle, and return to the previous bundle if they fail",
			ArgsKind: command.TakesFiles, Setup: setupApply,
			Detail: "The agent verifies the signatures (bundle.keys in the EdgeConfiguration) and unpacks all images. " +
				"Only then does it change pods.\nThe bundle is on trial until its pods are Ready. The agent fetches a bundle " +
				"at an https URL or in a\nregistry itself, with the credentials of pulls. It fetches only what the node lacks."},
		{Name: "status", Summary: "show the bundles of this node, and the result of the last trial", Setup: setupStatus,
			Detail: "With -o json, the output is the state of the node, signed by the node: its bundles, pods, versions, disk and wear."},
		{Name: "collect", Args: "FILES...", Summary: "print a table of the states of many nodes", ArgsKind: command.TakesFiles,
			Setup: setupCollect, NoAgent: true,
			Detail: "The files are those that nodes have written to sticks (islet-NODE.json), or outputs of islet bundle status -o json. " +
				"A state with a wrong signature is an error. " + bundleHelp},
		{Name: "revert", Summary: "end the trial of a bundle, or return to the previous bundle", Setup: setupRevert,
			Detail: "The configuration of the bundle goes back too. Data that pods have written in the meantime stays as it is."},
		{Name: "node", Summary: "describe this node, for islet bundle verify", Setup: setupNode,
			Detail: "Run this command on the node, because it asks the agent. The output has the node's name, labels, " +
				"platform and devices,\nislet's version and the fields of its configurations, the image layers that the node has, " +
				"and the node's public key for\nsealed Secrets. The agent makes this key if there is none. " +
				"The output contains no secret."},
		{Name: "seal", Args: "FILE --to KEY|FILE", Summary: "encrypt the Secrets of a manifest for nodes", ArgsKind: command.TakesFiles,
			Setup: setupSeal, NoAgent: true,
			Detail: "Writes NAME.sealed.yaml next to NAME.yaml. Run this command once and keep the result in the source " +
				"directory " +
				"of the\nbundle, because sealing again gives a different file. Then remove NAME.yaml from that " +
				"directory.\n" + bundleHelp},
	}
}

// isDirectoryName reports whether an output is a directory.
func isDirectoryName(name string) bool {
	info, err := os.Stat(name)
	return strings.HasSuffix(name, "/") || err == nil && info.IsDir()
}

// writeBundle writes a bundle to a tar, a directory or a registry, and shows the progress. A tar is replaced when it is complete.
func writeBundle(ctx context.Context, t *command.Tool, a *bundle.Artefact, name string, quiet bool) error {
	bar := terminal.NewProgress(t, quiet)
	a.Progress = func(done, total int64) error {
		bar.UpdateItem(filepath.Base(name), "writing", done, total)
		return context.Cause(ctx)
	}
	defer bar.ClearBars()
	if remote.Is(name) {
		return remote.Push(ctx, a, name, registryConfig(t))
	}
	if isDirectoryName(name) {
		err := a.WriteDir(name)
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w: free some space and write again: complete blobs stay in %s, and the "+
				"next write uses them", err, name)
		}
		return err
	}
	name, err := outputFile(name)
	if err != nil {
		return err
	}
	next := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".new")
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if err := errors.Join(a.WriteTar(f), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	if err := os.Rename(next, name); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(name))
}

// outputFile returns the file that a bundle replaces or creates: the target of a link, so that the link stays. It returns an error for a
// device, a FIFO and a socket, because a file would take their place.
func outputFile(name string) (string, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return name, nil
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file: name a file or a directory", name)
	}
	return filepath.EvalSymlinks(name)
}

func setupBuild(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	output := flags.StringP("output", "o", "", "the file, directory or oci://REPOSITORY:TAG to write")
	number := flags.Int64("number", 0, "the number of the bundle; replaces the number in bundle.yaml")
	quiet := flags.BoolP("quiet", "q", false, "no progress")
	plain := flags.Bool("plain-secrets", false, "allow Secrets that everyone who has the bundle can read")
	return func(ctx context.Context, args []string) error {
		switch {
		case len(args) != 1 || *output == "":
			return command.Usage("bundle build needs a directory and an output: islet bundle build DIR -o FILE")
		case flags.Changed("number") && *number < 1:
			return command.Usage("--number must be at least 1")
		case t.Inventory == nil:
			return errors.New("this program cannot build bundles")
		}
		if err := checkSourceDir(args[0]); err != nil {
			return err
		}
		bar := terminal.NewProgress(t, *quiet)
		b := &build.Build{Dir: args[0], Number: *number, Inventory: t.Inventory, PlainSecrets: *plain,
			Registries: remote.Images{Config: registryConfig(t)},
			Progress:   func(archive string, done int64) { bar.UpdateItem(archive, "reading", done, 0) }}
		a, err := b.Run(ctx)
		bar.ClearBars()
		if err == nil {
			err = writeBundle(ctx, t, a, *output, *quiet)
		}
		if err := errors.Join(err, b.Close()); err != nil {
			return err
		}
		for _, n := range b.Notes {
			fmt.Fprintln(t.Stderr, "Note: "+printable.Line(n))
		}
		noteExpiry(t, a.Contents)
		fmt.Fprintf(t.Out, "%s number %d: %s, %s\n", a.Contents.Name, a.Contents.Number, api.FormatSize(a.Contents.Size), a.ID)
		return nil
	}
}

// missingFile returns the error of a read of a file that the user named, with the exit code of a missing file if there is none.
func missingFile(name string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return command.ExitWith(command.ExitNotFound, fmt.Errorf("no file %s", name))
	}
	return err
}

// checkSourceDir returns an error if a source directory does not exist or is another file.
func checkSourceDir(name string) error {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return command.ExitWith(command.ExitNotFound, fmt.Errorf("no directory %s", name))
	case err == nil && !info.IsDir():
		err = fmt.Errorf("%s is not a directory: name the directory with %s", name, build.DescriptionFile)
	}
	return err
}

// openBundle opens a bundle. The caller closes the layout. When ctx ends, reads of a bundle in a registry fail.
func openBundle(ctx context.Context, t *command.Tool, name string, policy *bundle.Policy) (l bundle.Layout, b *bundle.Bundle, err error) {
	if remote.Is(name) {
		l, err = remote.Open(ctx, name, registryConfig(t))
	} else {
		l, err = bundle.OpenLayout(name)
	}
	if err != nil {
		return nil, nil, missingFile(name, err)
	}
	if b, err = bundle.Open(l, policy); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", name, err), l.Close())
	}
	return l, b, nil
}

func setupSign(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	files := flags.StringArray("key", nil, "a file with a private key; can be repeated")
	output := flags.StringP("output", "o", "", "write the signed bundle here instead of replacing it")
	identity := flags.String("identity", "", "sign only the bundle with this digest, which islet bundle build has printed")
	earlier := flags.String("keys", "",
		"a public key, or a file with a list of them: if the bundle has signatures, one of these keys must have signed it")
	quiet := flags.BoolP("quiet", "q", false, "no progress")
	return func(ctx context.Context, args []string) error {
		switch {
		case len(args) != 1 || len(*files) == 0:
			return command.Usage("bundle sign needs a bundle and a key: islet bundle sign FILE --key KEYFILE")
		case *identity == "" && remote.Is(args[0]):
			return command.Usage("bundle sign needs --identity for a bundle in a registry: the digest that islet bundle build has printed")
		}
		policy, err := (&bundleCheck{keys: *earlier, threshold: 1}).policy()
		if err != nil {
			return err
		}
		var keys []ed25519.PrivateKey
		for _, f := range *files {
			k, err := signed.ReadKeyFile(f)
			if err != nil {
				return missingFile(f, err)
			}
			keys = append(keys, k)
		}
		l, b, err := openBundle(ctx, t, args[0], nil)
		if err != nil {
			return err
		}
		defer l.Close()
		s, err := signatureToExtend(b, t.Now())
		if err == nil {
			err = checkToSign(args[0], b, *identity, policy)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		s.Text.Sign(keys...)
		a, err := b.Artefact(ctx)
		if err != nil {
			return err
		}
		if err := a.SetSignature(s); err != nil {
			return err
		}
		to := *output
		if to == "" {
			to = args[0]
		}
		if err := writeBundle(ctx, t, a, to, *quiet); err != nil {
			return err
		}
		fmt.Fprintf(t.Out, "%s number %d, %s, is signed by %s, first at %s\n", b.Contents.Name, b.Contents.Number, b.ID,
			strings.Join(s.Text.Signers(), ", "), bundle.FormatTime(s.Time))
		return nil
	}
}

// checkToSign returns an error if a bundle must not be signed: it has another identity than the signer expects, or the signatures that it
// has are not of the expected keys. Whoever signs also confirms the time of the first signature. A registry can invent both, so the policy
// is required for it.
func checkToSign(name string, b *bundle.Bundle, identity string, policy *bundle.Policy) error {
	switch isSigned := b.Signature != nil && len(b.Signature.Text.Signers()) > 0; {
	case identity != "" && identity != b.ID.String():
		return fmt.Errorf("it has the identity %s instead of %s: it is not the bundle that you want to sign", b.ID, identity)
	case !isSigned:
		return nil
	case policy != nil:
		return b.Signature.Text.Verify(policy.Keys, policy.Threshold, policy.KeysName)
	case remote.Is(name):
		return command.Usage("it is signed by %s: bundle sign needs --keys, to check that",
			printable.Line(strings.Join(b.Signature.Text.Signers(), ", ")))
	}
	return nil
}

// signatureToExtend returns the text that gets the next signatures. It is the text of the bundle, or a new text if the bundle has no
// signature. The text contains a time, which every signer confirms, so a time later than now is an error.
func signatureToExtend(b *bundle.Bundle, now time.Time) (*bundle.Signature, error) {
	if !clock.IsSet(now) {
		return nil, fmt.Errorf("the clock of this machine shows %s: set it, because a signature contains the time", bundle.FormatTime(now))
	}
	s := b.Signature
	if s == nil || len(s.Text.Signers()) == 0 {
		return bundle.NewSignature(b.Contents, b.ID, now), nil
	}
	if s.Time.After(now) {
		return nil, fmt.Errorf("its first signature is of %s, and the clock of this machine shows %s: "+
			"set the clock, or build the bundle again if the other time is wrong", bundle.FormatTime(s.Time), bundle.FormatTime(now))
	}
	return s, nil
}
