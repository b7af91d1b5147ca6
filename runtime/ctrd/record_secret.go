package ctrd

import (
	"os"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// withoutSecrets returns the configuration without the environment and the command. Both may
// contain values of Secrets, because a command may refer to a variable as $(NAME). Only the
// specification needs these fields. The specification is in the run directory, which is in memory.
// The record is on disk and may outlive the Secret.
func withoutSecrets(c *api.ContainerConfig) *api.ContainerConfig {
	out := proto.CloneOf(c)
	out.Envs, out.Command, out.Args = nil, nil, nil
	return out
}

// dropSecrets rewrites a container's record if an earlier version wrote the fields that
// withoutSecrets removes.
func dropSecrets(path string, c *container) error {
	if len(c.config.Envs)+len(c.config.Command)+len(c.config.Args) == 0 {
		return nil
	}
	cfg := withoutSecrets(c.config)
	packed, err := encode(cfg)
	if err != nil {
		return err
	}
	rec := c.rec
	rec.Config = packed
	if err := createRecord(path+".new", rec); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	c.config = cfg
	return nil
}
