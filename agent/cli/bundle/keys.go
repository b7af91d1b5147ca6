package bundle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/internal/signed"
)

// maxKeyList is the maximum size of a list of keys, in bytes.
const maxKeyList = 64 << 10

// keyCommands returns the commands of islet bundle keys.
func keyCommands() []command.Command {
	return []command.Command{
		{Name: "new", Args: "FILE", Summary: "write a new private key to a file, and print its public key", ArgsKind: command.TakesFiles,
			Setup: setupKeysNew, NoAgent: true, Detail: "An existing file is never replaced. Keep the file away from nodes and sticks."},
		{Name: "show", Args: "FILE...", Summary: "print the public keys of files with private keys, or of lists of keys",
			ArgsKind: command.TakesFiles, Setup: setupKeysShow, NoAgent: true,
			Detail: "The first column is the ID of the key in signatures. The rest of the line is a value for bundle.keys of a node."},
		{Name: "add", Args: "LIST KEY|FILE...", Summary: "add public keys to a list of keys", ArgsKind: command.TakesFiles,
			Setup: setupKeysAdd, NoAgent: true,
			Detail: "LIST is a file with one public key per line, for islet bundle verify. It is created if it does not exist.\n" +
				"Its lines and comments are kept, and the new keys are appended."},
	}
}

func setupKeysNew(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	quiet := flags.BoolP("quiet", "q", false, "do not print the public key")
	return func(_ context.Context, args []string) error {
		if len(args) != 1 {
			return command.Usage("bundle keys new needs one file: islet bundle keys new FILE")
		}
		k, err := signed.NewKeyFile(args[0])
		if err != nil {
			return err
		}
		if !*quiet {
			fmt.Fprintln(t.Out, k)
		}
		return nil
	}
}

func setupKeysShow(t *command.Tool, _ *pflag.FlagSet) command.Runner {
	return func(_ context.Context, args []string) error {
		if len(args) == 0 {
			return command.Usage("bundle keys show needs a file: islet bundle keys show FILE")
		}
		var tab terminal.Table
		for _, f := range args {
			keys, err := readKeys(f)
			if err != nil {
				return err
			}
			for _, k := range keys {
				tab.AddRow(k.ID(), k.String())
			}
		}
		tab.Print(t.Out)
		return nil
	}
}

func setupKeysAdd(t *command.Tool, _ *pflag.FlagSet) command.Runner {
	return func(_ context.Context, args []string) error {
		if len(args) < 2 {
			return command.Usage("bundle keys add needs a list and a key: islet bundle keys add LIST KEY")
		}
		if _, err := signed.ReadKeyFile(args[0]); err == nil {
			return command.Usage("%s contains a private key, and keys add would replace it: name the list of public keys first", args[0])
		}
		text, err := regular.Read(args[0], maxKeyList)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		list, err := signed.ParseKeyList(args[0], text)
		if err != nil {
			return err
		}
		if len(text) > 0 && text[len(text)-1] != '\n' {
			text = append(text, '\n')
		}
		before := len(list)
		for _, a := range args[1:] {
			keys, err := parseKeys(a)
			if err != nil {
				return err
			}
			for _, k := range keys {
				if !slices.ContainsFunc(list, func(o signed.Key) bool { return o.ID() == k.ID() }) {
					list = append(list, k)
					text = fmt.Appendln(text, k)
				}
			}
		}
		if len(text) > maxKeyList {
			return fmt.Errorf("the list would have more than %d bytes", maxKeyList)
		}
		if len(list) > before {
			if err := durable.Write(args[0], text, 0o644); err != nil {
				return err
			}
		}
		fmt.Fprintf(t.Out, "%s has %s\n", args[0], api.Pluralize(len(list), "key"))
		return nil
	}
}

// parseKeys returns the key that an argument is, or the keys in the file that the argument names.
func parseKeys(arg string) ([]signed.Key, error) {
	if k, err := signed.ParseKey(arg); err == nil {
		return []signed.Key{k}, nil
	}
	return readKeys(arg)
}

// readKeys returns the public keys of a file. The file is a list of public keys, or has one private key.
func readKeys(file string) (keys []signed.Key, err error) {
	if private, err := signed.ReadKeyFile(file); err == nil {
		return []signed.Key{signed.PublicKey(private)}, nil
	}
	text, err := regular.Read(file, maxKeyList)
	if err != nil {
		return nil, missingFile(file, err)
	}
	keys, err = signed.ParseKeyList(file, text)
	if err == nil && len(keys) == 0 {
		err = fmt.Errorf("%s contains no keys", file)
	}
	return keys, err
}
