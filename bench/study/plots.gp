# Pictures of the study: gnuplot -e "results='DIR'" plots.gp reads DIR/study-*.tsv, writes DIR/study-*.svg.
set datafile separator "\t"
set datafile missing "-"
set border 3 lc rgb "#555555"
set tics nomirror
set grid lc rgb "#dddddd"
colour(i) = word("#332288 #44aa99 #cc6677 #117733 #88ccee #aa4499 #999933 #882255 #ddcc77 #777777", i) # as bench/plots.gp
shape(i) = int(word("6 4 8 12 10 14 1 2 3 5", i)) # hollow but for the tenth: none hides another
steps = results."/study-steps.tsv"
rates = results."/study-rates.tsv"
origin(file) = system("sed -n '2{s/^# //; s/, bitsnap [^;]*//; p}' ".file) # the commit says which bitsnap
# Rows of a tensor and a distance, under their header.
rows(tensor, distance) = "< awk -F'\\t' '$1 == \"tensor\" || ($1 == \"".tensor."\" && $3 - $2 == ".distance.")' ".steps
apart(d) = d == 1 ? "1 step apart" : sprintf("%d steps apart", d)
kinds = "master exp_avg exp_avg_sq"
distances = "1 5 25"
label_origin = "set label 1 origin(steps) at screen 0.5, 0.015 center font ',9' tc rgb '#777777' noenhanced" # drawn by the first panel

# (a) sizes of bf16 weights over the run
forms = "default best self xor-huffman xor-zstd-1 mask full"
set terminal svg size 1200,520 font "sans,12" background "white"
set output results."/study-weights.svg"
eval label_origin
set multiplot layout 1,3 title "bf16 weights in training: bits an element by form\n" margins 0.05,0.98,0.27,0.88 spacing 0.05
set xlabel "step"
set ylabel "bits an element"
set yrange [0:17]
set key at screen 0.5, 0.11 center vertical maxrows 2 noenhanced
do for [d in distances] {
    set title apart(int(d))
    plot for [i = 1:words(forms)] rows("model", d) using "from":word(forms, i) with linespoints pt shape(i) ps 0.6 lc rgb colour(i) title word(forms, i)
    unset key
    unset ylabel
    unset label 1
}
unset multiplot

# (b) what changes
set output results."/study-change.svg"
eval label_origin
set terminal svg size 1200,560 font "sans,12" background "white"
set multiplot layout 1,2 title "bf16 weights in training: what changes\n" margins 0.06,0.98,0.32,0.88 spacing 0.08
set title "elements that change"
set ylabel "per cent"
set yrange [0:100]
set key at screen 0.27, 0.11 center vertical maxrows 2
plot for [i = 1:3] rows("model", word(distances, i)) using "from":(100 * column("changed") / column("elements")) \
    with linespoints pt shape(i) ps 0.6 lc rgb colour(i) title apart(int(word(distances, i)))
unset label 1
set title "order-0 entropy of the byte planes"
set ylabel "bits a byte"
set yrange [0:8.2]
set key at screen 0.77, 0.11 center vertical maxrows 4
plot rows("model", 1) using "from":"entropy_0" with lines lw 2 lc rgb "#7f7f7f" title "weights, low", \
    rows("model", 1) using "from":"entropy_1" with lines lw 2 dt 2 lc rgb "#7f7f7f" title "weights, high", \
    for [i = 1:3] rows("model", word(distances, i)) using "from":"xor_entropy_0" with linespoints pt shape(i) ps 0.6 lc rgb colour(i) \
        title "XOR, low, ".apart(int(word(distances, i))), \
    for [i = 1:3] rows("model", word(distances, i)) using "from":"xor_entropy_1" with linespoints pt shape(i) ps 0.6 dt 2 lc rgb colour(i) \
        title "XOR, high, ".apart(int(word(distances, i)))
unset multiplot

# (c) the state of the optimizer, and what the encoder chooses
forms = "default best self xor-huffman xor-zstd-1 full"
set output results."/study-state.svg"
eval label_origin
set terminal svg size 1200,760 font "sans,12" background "white"
set multiplot layout 2,3 title "fp32 state in training: bits an element by form, 1 step apart; below, what level default chooses\n" \
    margins 0.06,0.98,0.17,0.91 spacing 0.05,0.10
set ylabel "bits an element"
set yrange [*:*]
set key at screen 0.5, 0.085 center vertical maxrows 1 noenhanced
do for [kind in kinds] {
    set title kind noenhanced
    plot for [i = 1:words(forms)] rows(kind, "1") using "from":word(forms, i) with linespoints pt shape(i + (i == 6)) ps 0.6 lc rgb colour(i + (i == 6)) title word(forms, i)
    unset key
    unset ylabel
    unset label 1
}
unset title
set ylabel "% of cells against the base"
set yrange [-5:105]
set key at screen 0.5, 0.045 center vertical maxrows 1
share(x) = 100 * column("default_classed") / (column("default_same") + column("default_classed") + column("default_plain"))
do for [kind in kinds] {
    plot for [i = 1:3] rows(kind, word(distances, i)) using "from":(share(0)) with linespoints pt shape(i) ps 0.6 lc rgb colour(i) title apart(int(word(distances, i)))
    unset key
    unset ylabel
    unset label 1
}
unset multiplot

# (d) size against the share of elements that change
forms = "fast default best self xor-huffman xor-zstd-1 mask pairs gaps full"
set label 1 origin(rates) at screen 0.5, 0.015 center font ",9" tc rgb "#777777" noenhanced
set output results."/study-rates.svg"
set terminal svg size 900,620 font "sans,12" background "white"
set title "bf16 weights, a share of them changed by one unit in the last place: size against that share"
set bmargin 10
set logscale xy
set xrange [8e-6:1.2]
set yrange [5e-6:4]
set format x "%g"
set format y "%g"
set xlabel "share of elements that change"
set ylabel "size, of raw elements"
set key at screen 0.5, 0.09 center vertical maxrows 3 noenhanced
entropy(p) = (p < 1 ? -p * log(p) / log(2) - (1 - p) * log(1 - p) / log(2) + p : p > 1 ? NaN : 1) / 16
width = 16.0
plot for [i = 1:words(forms)] "< grep -v '^#' ".rates using (column("changed") / column("elements")):(column(word(forms, i)) / width) \
    with linespoints pt shape(i) ps 0.6 lc rgb colour(i) title word(forms, i), \
    entropy(x) with lines dt 3 lc rgb "black" title "entropy"
