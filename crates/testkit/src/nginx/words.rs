//! The words of the lines, with the share of each choice.

/// A choice and its share, in per cent.
pub(super) type Weighted<T> = (u8, T);

/// Picks a choice according to its share; the shares of a table sum to 100 (a test checks this).
pub(super) fn pick<T: Copy>(rng: &mut fastrand::Rng, choices: &[Weighted<T>]) -> T {
    let mut left = rng.u8(0..100);
    for &(share, choice) in choices {
        if left < share {
            return choice;
        }
        left -= share;
    }
    choices[0].1
}

pub(super) const STATUSES: &[Weighted<u16>] = &[
    (72, 200),
    (3, 201),
    (2, 204),
    (2, 206),
    (3, 301),
    (2, 302),
    (7, 304),
    (1, 400),
    (1, 401),
    (1, 403),
    (4, 404),
    (1, 499),
    (1, 504),
];

pub(super) const METHODS: &[Weighted<&str>] = &[
    (84, "GET"),
    (10, "POST"),
    (2, "HEAD"),
    (2, "PUT"),
    (1, "DELETE"),
    (1, "OPTIONS"),
];

pub(super) const HOSTS: &[Weighted<&str>] = &[
    (58, "www.example.com"),
    (22, "static.example.com"),
    (14, "api.example.com"),
    (6, "shop.example.org"),
];

pub(super) const PATHS: &[Weighted<&str>] = &[
    (22, "product"),
    (10, "list"),
    (8, "search"),
    (22, "image"),
    (12, "asset"),
    (10, "api"),
    (6, "/"),
    (3, "/cart"),
    (2, "/login"),
    (2, "/favicon.ico"),
    (1, "/robots.txt"),
    (1, "/.env"),
    (1, "/wp-login.php"),
];

pub(super) const CATEGORIES: &[&str] = &[
    "shoes",
    "jackets",
    "lamps",
    "tents",
    "bikes",
    "cameras",
    "books",
    "knives",
    "headphones",
    "backpacks",
];

pub(super) const SEARCHES: &[&str] = &[
    "trail+shoes",
    "rain%20jacket",
    "desk+lamp",
    "2%20person%20tent",
    "city+bike",
    "caf%C3%A9",
    "gift",
    "sale",
    "usb-c+charger",
];

pub(super) const REFERRERS: &[Weighted<&str>] = &[
    (30, "-"),
    (38, "shop"),
    (16, "https://www.example.com/"),
    (10, "https://search.example.net/"),
    (6, "https://news.example.net/deals?utm_source=mail"),
];

pub(super) const UPSTREAMS: &[&str] = &[
    "10.4.1.11:8080",
    "10.4.1.12:8080",
    "10.4.2.21:8080",
    "10.4.2.22:8080",
];

pub(super) const AGENTS: &[Weighted<&str>] = &[
    (
        30,
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36",
    ),
    (
        14,
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Safari/605.1.15",
    ),
    (
        22,
        "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1",
    ),
    (
        20,
        "Mozilla/5.0 (Linux; Android 15; SM-S921B) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Mobile Safari/537.36",
    ),
    (
        8,
        "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    ),
    (6, "okhttp/4.12.0"),
];

pub(super) const BOTS: &[&str] = &[
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
    "curl/8.14.1",
    "Prometheus/3.4.1",
    "python-requests/2.32.4",
    "kube-probe/1.33",
];
