/* Ask `trident serve` for one agent's action: a line of JSON there, a line of JSON back.
 *
 *   cc -std=c99 -o client client.c
 *   ./client PORT AGENT OBS...        prints {"id": 1, "agent": 0, "mode": 1, "params": [...], ...}
 *
 * Whatever goes wrong, the exit code is not 0: then do what is safe. Parsing the answer is left to your JSON library. */
#define _POSIX_C_SOURCE 200112L
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static int send_all(int to, const char *text, size_t length) {
    while (length > 0) {
        ssize_t sent = send(to, text, length, 0);
        if (sent <= 0) return -1;
        text += sent;
        length -= (size_t)sent;
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: client PORT AGENT OBS...\n");
        return 2;
    }
    int server = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval patience = {1, 0}; /* an answer that takes longer is none */
    struct sockaddr_in place;
    memset(&place, 0, sizeof place);
    place.sin_family = AF_INET;
    place.sin_port = htons((unsigned short)atoi(argv[1]));
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (server < 0 || connect(server, (struct sockaddr *)&place, sizeof place) != 0) {
        perror("connect");
        return 1;
    }

    static char line[1 << 16];
    size_t used = (size_t)snprintf(line, sizeof line, "{\"id\": 1, \"agent\": %d, \"obs\": [", atoi(argv[2]));
    for (int i = 3; i < argc && used < sizeof line - 64; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%.9g", i > 3 ? ", " : "", atof(argv[i]));
    used += (size_t)snprintf(line + used, sizeof line - used, "]}\n");
    if (send_all(server, line, used) != 0) return 1;

    size_t have = 0;
    while (have < sizeof line - 1 && (have == 0 || line[have - 1] != '\n')) {
        ssize_t got = recv(server, line + have, sizeof line - 1 - have, 0);
        if (got <= 0) return 1;
        have += (size_t)got;
    }
    line[have] = '\0';
    fputs(line, stdout);
    close(server);
    return strstr(line, "\"error\"") == NULL ? 0 : 1;
}
