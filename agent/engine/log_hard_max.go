package engine

import "github.com/islet-edge/islet/internal/config"

// logHardMaxBytes returns the maximum size of a container's log in bytes. A larger log is rotated at once, even if its last
// rotation was a short time ago. With podLogQuota, the maximum size is at most a quarter of the quota, but at least
// containerLogMaxSize. The quota does not remove active files, and a container has active files of two attempts.
func logHardMaxBytes(c *config.Config) int64 {
	limit := c.ContainerLogMaxSize * int64(*c.Kubelet.ContainerLogMaxFiles)
	if c.PodLogQuota > 0 {
		limit = min(limit, max(c.PodLogQuota/4, c.ContainerLogMaxSize))
	}
	return limit
}
