package config

import (
	"maps"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

// Redacted returns a copy of a kubelet's configuration for logs and /configz. The values of staticPodURLHeader are masked,
// because they may contain credentials.
func Redacted(k *kubelet.KubeletConfiguration) kubelet.KubeletConfiguration {
	c := *k
	c.APIVersion, c.Kind = kubelet.SchemeGroupVersion.String(), "KubeletConfiguration"
	c.StaticPodURLHeader = maps.Clone(c.StaticPodURLHeader)
	for name := range c.StaticPodURLHeader {
		c.StaticPodURLHeader[name] = []string{"<masked>"}
	}
	return c
}
