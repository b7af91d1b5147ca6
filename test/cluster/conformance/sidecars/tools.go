//go:build tools

// Package sidecars imports programs that run as sidecars of the CSI drivers in the storage specs.
// Because of the imports, go.mod requires the modules of these programs.
package sidecars

import (
	_ "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher"
	_ "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner"
	_ "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer"
)
