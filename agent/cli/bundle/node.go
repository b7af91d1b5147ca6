package bundle

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/node"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bundle"
)

// setupNode prints the description of this node for islet bundle verify --for.
func setupNode(t *command.Tool, _ *pflag.FlagSet) command.Runner {
	return func(ctx context.Context, _ []string) error {
		if _, err := node.MakeRecipient(ctx, t); err != nil {
			return err
		}
		node := &bundle.Node{}
		if err := client.Get(ctx, t, api.PathBundleNode, node); err != nil {
			return err
		}
		text, err := yaml.Marshal(node)
		if err != nil {
			return err
		}
		if _, err := bundle.ParseNode(text); err != nil {
			return fmt.Errorf("islet bundle verify would not accept the description of this node: %w", err)
		}
		_, err = t.Out.Write(text)
		return err
	}
}
