#!/usr/bin/perl
# Softmax regression on Fashion-MNIST, trained by gradient descent, in Perl: a program that knows nothing of Hopyard.
#
#   perl train.pl LEARNING_RATE L2 BATCH_SIZE EPOCHS
#
# It prints a line after each epoch; the pattern in experiment.yaml reads the accuracy from it.
use strict;
use warnings;

my ($rate, $l2, $batch, $epochs) = @ARGV;
die "usage: perl train.pl LEARNING_RATE L2 BATCH_SIZE EPOCHS\n" unless defined $epochs;

# Without this Perl keeps lines back until some kilobytes have gathered, when its output is not a terminal; the cluster
# would see the first epochs long after they were over. Other languages: flush after the line, or `stdbuf -oL program`.
$| = 1;

my $folder = $ENV{FASHION_MNIST} // '/usr/share/datasets/fashion-mnist';
my ($trained, $held_out, $classes, $size) = (1000, 500, 10, 7);

sub idx {    # the first bytes behind the header of a gzipped idx file
    my ($name, $header, $wanted) = @_;
    my $path = "$folder/$name";
    -e $path or die "no $path: on Debian and Ubuntu run  sudo apt-get install dataset-fashion-mnist\n";
    open my $file, '-|', 'gzip', '-dc', $path or die "cannot run gzip: $!\n";
    binmode $file;
    read($file, my $skipped, $header) == $header or die "$path is cut off\n";
    read($file, my $bytes, $wanted) == $wanted or die "$path is cut off\n";
    return $bytes;
}

# 7 x 7 pixels: the mean of each 4 x 4 of the 28 x 28, between -0.5 and 0.5; one more that is always 1, for the bias.
sub image {
    my @pixels = unpack 'C*', shift;
    my @small = (0) x ($size * $size);
    for my $row (0 .. 27) {
        $small[$size * int($row / 4) + int($_ / 4)] += $pixels[28 * $row + $_] for 0 .. 27;
    }
    return [(map { $_ / (16 * 255) - 0.5 } @small), 1];
}

my $count  = $trained + $held_out;
my $pixels = idx('train-images-idx3-ubyte.gz', 16, 784 * $count);
my @labels = unpack 'C*', idx('train-labels-idx1-ubyte.gz', 8, $count);
my @images = map { image(substr $pixels, 784 * $_, 784) } 0 .. $count - 1;
my $inputs = $size * $size + 1;
my @weights = map { [(0) x $inputs] } 1 .. $classes;

sub scores {    # how much an image looks like each class
    my ($image) = @_;
    return map {
        my ($row, $sum) = ($_, 0);
        $sum += $row->[$_] * $image->[$_] for 0 .. $inputs - 1;
        $sum;
    } @weights;
}

sub probabilities {
    my @scores = @_;
    my ($most) = sort { $b <=> $a } @scores;
    my @powers = map { exp($_ - $most) } @scores;
    my $sum = 0;
    $sum += $_ for @powers;
    return map { $_ / $sum } @powers;
}

for my $epoch (1 .. $epochs) {
    my $loss = 0;
    for (my $first = 0; $first < $trained; $first += $batch) {
        my $last = $first + $batch < $trained ? $first + $batch : $trained;
        my @gradient = map { [(0) x $inputs] } 1 .. $classes;
        for my $example ($first .. $last - 1) {
            my $image = $images[$example];
            my @found = probabilities(scores($image));
            $loss -= log($found[$labels[$example]] + 1e-12);
            $found[$labels[$example]] -= 1;
            for my $class (0 .. $classes - 1) {
                my ($row, $error) = ($gradient[$class], $found[$class]);
                $row->[$_] += $error * $image->[$_] for 0 .. $inputs - 1;
            }
        }
        my $step = $rate / ($last - $first);
        for my $class (0 .. $classes - 1) {
            my ($row, $slope) = ($weights[$class], $gradient[$class]);
            $row->[$_] -= $step * $slope->[$_] + $rate * $l2 * $row->[$_] for 0 .. $inputs - 1;
        }
    }
    my $right = 0;
    for my $example ($trained .. $count - 1) {
        my @scores = scores($images[$example]);
        my ($best) = sort { $scores[$b] <=> $scores[$a] } 0 .. $classes - 1;
        $right++ if $best == $labels[$example];
    }
    printf "epoch %d loss %.4f accuracy=%.4f\n", $epoch, $loss / $trained, $right / $held_out;
}
