package engine

import "github.com/islet-edge/islet/internal/config"

func parallelPulls(cfg *config.Config) int {
	if n := cfg.Kubelet.MaxParallelImagePulls; n != nil {
		return int(*n)
	}
	return 0
}
