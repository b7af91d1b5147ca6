package cli

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bundle"
)

// setupBundleNode prints the description of this node for islet bundle verify --for.
func setupBundleNode(t *tool, _ *pflag.FlagSet) runner {
	return func(ctx context.Context, _ []string) error {
		if _, err := t.makeRecipient(ctx); err != nil {
			return err
		}
		node := &bundle.Node{}
		if err := t.get(ctx, api.PathBundleNode, node); err != nil {
			return err
		}
		text, err := yaml.Marshal(node)
		if err != nil {
			return err
		}
		if _, err := bundle.ParseNode(text); err != nil {
			return fmt.Errorf("islet bundle verify would not accept the description of this node: %w", err)
		}
		_, err = t.out.Write(text)
		return err
	}
}
