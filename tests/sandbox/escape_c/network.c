#include "escape.h"
#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>

static struct sockaddr_in target(const char *address) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(env("PORT")))};
    inet_pton(AF_INET, address, &to.sin_addr);
    return to;
}

static void tcp(void) {
    struct sockaddr_in to = target("127.0.0.1");
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (void *)&to, sizeof to)) perror("connect");
    int fast = socket(AF_INET, SOCK_STREAM, 0);
    if (sendto(fast, "x", 1, 0x20000000 /* MSG_FASTOPEN */, (void *)&to, sizeof to) < 0) perror("fast open");
    int multipath = socket(AF_INET, SOCK_STREAM, 262);
    if (multipath >= 0 && connect(multipath, (void *)&to, sizeof to)) perror("mptcp");
}

static void abstract(void) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t length = strlen(env("ABSTRACT"));
    memcpy(to.sun_path + 1, env("ABSTRACT"), length);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(s, (void *)&to, offsetof(struct sockaddr_un, sun_path) + 1 + length)) perror("connect");
}

static void ping(void) {
    struct sockaddr_in to = target(env("LAN"));
    struct timeval wait = {1, 0};
    int kinds[] = {SOCK_DGRAM, SOCK_RAW};
    for (int i = 0; i < 2; i++) {
        int s = socket(AF_INET, kinds[i], IPPROTO_ICMP);
        if (s < 0) { perror("icmp"); continue; }
        struct icmphdr echo = {.type = ICMP_ECHO, .un.echo = {htons(77), htons(1)}};
        unsigned sum = (ICMP_ECHO) + htons(77) + htons(1);
        echo.checksum = ~((sum & 0xffff) + (sum >> 16));
        char answer[256];
        setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        if (sendto(s, &echo, sizeof echo, 0, (void *)&to, sizeof to) < 0) perror("sendto");
        else if (recv(s, answer, sizeof answer, 0) > 0) puts("ESCAPED ping was answered");
    }
}

static void raw(void) {
    worked("raw socket", socket(AF_INET, SOCK_RAW, IPPROTO_TCP));
    worked("raw socket 6", socket(AF_INET6, SOCK_RAW, IPPROTO_TCP));
}

static void packet(void) { worked("packet socket", socket(AF_PACKET, SOCK_RAW, 0)); }
static void vsock(void) { worked("vsock", socket(40, SOCK_STREAM, 0)); }
static void alg(void) { worked("alg", socket(38, SOCK_SEQPACKET, 0)); }

/* Families whose code no build needs; the filter says EAFNOSUPPORT before the kernel may load a module for them. */
static void families(void) {
    for (int family = 3; family < 46; family++) {
        if (family == AF_INET6 || family == AF_NETLINK) continue;
        for (int kind = 1; kind <= 5; kind++) {
            int s = socket(family, kind, 0);
            if (s >= 0) printf("ESCAPED socket of family %d\n", family), close(s);
        }
    }
}

static void pairs(void) {
    int pair[2];
    for (int family = 3; family < 46; family++)
        for (int kind = 1; kind <= 5; kind++)
            if (family != AF_INET6 && family != AF_NETLINK && socketpair(family, kind, 0, pair) &&
                errno != EAFNOSUPPORT && errno != EPERM && errno != ESOCKTNOSUPPORT && errno != EPROTONOSUPPORT)
                printf("ESCAPED socketpair reached the code of family %d: errno %d\n", family, errno);
}

/* Sets the loopback up, which it is: allowed or not is all that shows. */
static void netlink(void) {
    int s = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    struct { struct nlmsghdr head; struct ifinfomsg link; } ask = {
        {sizeof ask, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0},
        {.ifi_family = AF_UNSPEC, .ifi_index = 1, .ifi_flags = IFF_UP, .ifi_change = IFF_UP}};
    struct { struct nlmsghdr head; struct nlmsgerr error; char rest[512]; } answer;
    struct timeval wait = {1, 0};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    if (s < 0 || send(s, &ask, sizeof ask, 0) < 0 || recv(s, &answer, sizeof answer, 0) < 0) { perror("netlink"); return; }
    errno = -answer.error.error;
    worked("netlink change", answer.error.error ? -1 : 0);
}

int main(int argc, char **argv) {
    static const struct attack attacks[] = {
        {"tcp", tcp}, {"abstract", abstract}, {"ping", ping}, {"raw", raw}, {"packet", packet}, {"vsock", vsock},
        {"alg", alg}, {"families", families}, {"pairs", pairs}, {"netlink", netlink}, {0}};
    return start(attacks, argc, argv);
}
