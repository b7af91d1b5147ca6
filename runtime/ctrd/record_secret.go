package ctrd

import (
	"os"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// withoutSecrets leaves out of a configuration what only its specification needs
// and what may hold values of Secrets: the environment, and the command, in which
// $(NAME) stands for a variable. The specification is in the run directory, which
// is not on a disk; a record is, and outlives the Secret.
func withoutSecrets(c *api.ContainerConfig) *api.ContainerConfig {
	out := proto.CloneOf(c)
	out.Envs, out.Command, out.Args = nil, nil, nil
	return out
}

// dropSecrets writes the record of a container anew that a program before this one
// has written with what withoutSecrets leaves out.
func dropSecrets(path string, c *container) error {
	if len(c.config.Envs)+len(c.config.Command)+len(c.config.Args) == 0 {
		return nil
	}
	cfg := withoutSecrets(c.config)
	packed, err := pack(cfg)
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
	c.config, c.rec = cfg, rec
	return nil
}
