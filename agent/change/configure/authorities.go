package configure

import (
	"fmt"

	"github.com/islet-edge/islet/internal/clientca"
	"github.com/islet-edge/islet/internal/config"
)

// authorities returns an error if next has a different client CA file from the one in now, and that file is invalid.
// With such a file, no client could authenticate with a certificate. The trial cannot detect that, because the node
// itself may have no client certificate.
func authorities(now, next *config.Config) error {
	file := next.Kubelet.Authentication.X509.ClientCAFile
	if file == "" || file == now.Kubelet.Authentication.X509.ClientCAFile {
		return nil
	}
	if _, err := clientca.Read(file); err != nil {
		return fmt.Errorf("authentication.x509.clientCAFile: Invalid value: %q: %w", file, err)
	}
	return nil
}
