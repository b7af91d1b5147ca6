package configure

import (
	"fmt"

	"github.com/islet-edge/islet/internal/clientca"
	"github.com/islet-edge/islet/internal/config"
)

// authorities says why nobody could use the kubelet API any more with a certificate where next
// counts instead of now: the node itself may have none to try that with.
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
