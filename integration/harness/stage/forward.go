package stage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// forwarding matches the output of kubectl port-forward when its port is open.
var forwarding = regexp.MustCompile(`^Forwarding from (127\.0\.0\.1:\d+)`)

// forwardTimeout is how long opening a port and one request through it may take.
const forwardTimeout = time.Minute

// askThroughForward sends a request to a pod's port 8080 through `kubectl port-forward` and returns the answer.
func askThroughForward(ctx context.Context, kubectl, kubeconfig, pod string) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, kubectl, "--kubeconfig="+kubeconfig, "port-forward", "--address=127.0.0.1", "pod/"+pod, ":8080")
	var complaint strings.Builder
	command.Stderr, command.WaitDelay = &complaint, 5*time.Second
	output, err := command.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := command.Start(); err != nil {
		return "", err
	}
	answer, err = askFirst(ctx, output)
	cancel()
	_ = command.Wait() // it has been killed
	if err != nil && complaint.Len() > 0 {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(complaint.String()))
	}
	return answer, err
}

// askFirst sends a request to the port in kubectl's first line.
func askFirst(ctx context.Context, output io.Reader) (answer string, err error) {
	line, err := bufio.NewReader(output).ReadString('\n')
	match := forwarding.FindStringSubmatch(line)
	if match == nil {
		return "", errors.Join(fmt.Errorf("kubectl port-forward names no port, its first line is %q", line), err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+match[1]+"/", nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the answer is %s", response.Status)
	}
	return strings.TrimSpace(string(body)), nil
}
