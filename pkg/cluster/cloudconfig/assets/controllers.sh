#!/bin/sh
# Has the kubelet run the controllers of Kubernetes as soon as the API server of this machine is ready. They would end, begin
# anew and be put off for longer each time, while the API server needs the processors. Without an answer they begin in the end
# all the same, and say themselves what they miss.
set -eu

until bash -c ": </dev/tcp/127.0.0.1/$PORT" 2>/dev/null; do
	sleep $((PAUSE / 2))
done
# Where there is OpenSSL it asks, for what anybody may ask: kubectl needs seconds of an emulated processor to begin, each time.
ready() {
	if command -v openssl >/dev/null; then
		printf 'GET /readyz HTTP/1.0\r\n\r\n' |
			timeout 10 openssl s_client -quiet -verify_return_error -partial_chain -CAfile "$CA" -connect "127.0.0.1:$PORT" 2>/dev/null |
			head -n 1 | grep -q ' 200 '
	else
		kubectl --kubeconfig="$KUBECONFIG" --request-timeout=10s get --raw=/readyz >/dev/null 2>&1
	fi
}
tries=0
while sleep "$PAUSE"; ! ready; do
	tries=$((tries + 1))
	if [ "$tries" -ge "$TRIES" ]; then
		echo "the API server is not ready after $tries tries; the controllers begin" >&2
		break
	fi
done
# The kubelet reads a file as soon as it sees it: whole or not at all.
for manifest in "$WAITING"/*.yaml; do
	cp -p "$manifest" "$MANIFESTS/.${manifest##*/}"
	mv "$MANIFESTS/.${manifest##*/}" "$MANIFESTS/${manifest##*/}"
done
