package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/islet-edge/islet/agent/cli/command"
)

// selectorFlag is the flag -l.
type selectorFlag struct{ text string }

func (s *selectorFlag) declareSelector(flags *pflag.FlagSet) {
	flags.StringVarP(&s.text, "selector", "l", "", "only pods with these labels, such as app=web,tier!=test or 'app in (a,b)'")
}

// parseSelector parses the flag. It returns nil if the flag is not set, so every pod matches.
func (s *selectorFlag) parseSelector() (labels.Selector, error) {
	if s.text == "" {
		return nil, nil
	}
	selector, err := labels.Parse(s.text)
	if err != nil {
		return nil, command.Usage("selector %q: %v", s.text, err)
	}
	return selector, nil
}

// selectPods returns the pods that match the flag.
func (s *selectorFlag) selectPods(pods []v1.Pod) ([]v1.Pod, error) {
	selector, err := s.parseSelector()
	if err != nil || selector == nil {
		return pods, err
	}
	return slices.DeleteFunc(slices.Clone(pods), func(p v1.Pod) bool { return !selector.Matches(labels.Set(p.Labels)) }), nil
}

// noPods is the error for a selector or a namespace without pods. The parameter elsewhere is the number of matching pods
// in other namespaces.
func noPods(selector, namespace string, anywhere bool, elsewhere int) error {
	text := "no pods"
	if selector != "" {
		text += fmt.Sprintf(" match the labels %s", selector)
	}
	if !anywhere {
		text += fmt.Sprintf(" in namespace %s", namespace)
		if elsewhere > 0 {
			text += fmt.Sprintf("; there are %d in others: use -A", elsewhere)
		}
	}
	return errors.New(text)
}
