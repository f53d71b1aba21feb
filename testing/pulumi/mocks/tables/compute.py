"""Machines: launch templates, placement groups, volumes, tags of autoscaling groups, the drill."""

from testing.pulumi.mocks.kind import AwsType
from testing.pulumi.mocks.tables.network import EC2, TAGS

_DATA = "LaunchTemplateData"

ROWS = (
    AwsType(
        "aws:ec2/launchTemplate:LaunchTemplate", create="ec2/CreateLaunchTemplate",
        updates=("CreateLaunchTemplateVersion", "ModifyLaunchTemplate", *TAGS), delete="DeleteLaunchTemplate",
        autoname="name", autoname_length=125, id="lt-{hash}", counters=("latestVersion",),
        # tf, resourceLaunchTemplateUpdate: what is not in its list makes no new version.
        quiet=("tags", "defaultVersion", "updateDefaultVersion", "maintenanceOptions"),
        members={
            **{
                name: f"{_DATA}.{name[0].upper()}{name[1:]}"
                for name in (
                    *("blockDeviceMappings", "capacityReservationSpecification", "cpuOptions", "creditSpecification"),
                    *("disableApiStop", "disableApiTermination", "ebsOptimized", "enclaveOptions", "hibernationOptions"),
                    *("iamInstanceProfile", "imageId", "instanceInitiatedShutdownBehavior", "instanceMarketOptions"),
                    *("instanceRequirements", "instanceType", "kernelId", "keyName", "licenseSpecifications"),
                    *("maintenanceOptions", "metadataOptions", "monitoring", "networkInterfaces"),
                    *("networkPerformanceOptions", "placement", "privateDnsNameOptions", "ramDiskId", "secondaryInterfaces"),
                    *("tagSpecifications", "userData"),
                )
            },
            "name": "LaunchTemplateName", "namePrefix": "LaunchTemplateName", "description": "VersionDescription",
            "securityGroupNames": f"{_DATA}.SecurityGroups", "vpcSecurityGroupIds": f"{_DATA}.SecurityGroupIds",
            "defaultVersion": "ModifyLaunchTemplate:DefaultVersion", "updateDefaultVersion": None,
            "networkInterfaces.securityGroups": "Groups", "networkInterfaces.ipv4AddressCount": "SecondaryPrivateIpAddressCount",
            "networkInterfaces.ipv4Addresses": "PrivateIpAddresses.PrivateIpAddress",
            "networkInterfaces.ipv6Addresses": "Ipv6Addresses.Ipv6Address",
            "networkInterfaces.ipv4Prefixes": "Ipv4Prefixes.Ipv4Prefix",
            "networkInterfaces.ipv6Prefixes": "Ipv6Prefixes.Ipv6Prefix",
            "tagSpecifications.tags": None,
        },
        # Everything but the name changes the same template (CreateLaunchTemplateVersion; tf, resourceLaunchTemplate: ForceNew).
        replaces=("name", "namePrefix"), updated=("description",),
        sets=(
            "vpcSecurityGroupIds", "securityGroupNames", "secondaryInterfaces.privateIpAddresses",
            *(f"networkInterfaces.{name}" for name in (
                "securityGroups", "ipv4Addresses", "ipv4Prefixes", "ipv6Addresses", "ipv6Prefixes",
            )),
            *(f"instanceRequirements.{name}" for name in (
                "acceleratorManufacturers", "acceleratorNames", "acceleratorTypes", "allowedInstanceTypes", "cpuManufacturers",
                "excludedInstanceTypes", "instanceGenerations", "localStorageTypes",
            )),
        ),
        outputs={"arn": EC2 + ":launch-template/{id}", "defaultVersion": 1},
    ),
    AwsType(
        "aws:ec2/placementGroup:PlacementGroup", create="ec2/CreatePlacementGroup", updates=TAGS,
        delete="DeletePlacementGroup", autoname="name", id="{name}", members={"name": "GroupName"},
        outputs={"arn": EC2 + ":placement-group/{name}", "placementGroupId": "pg-{hash}"},
    ),
    AwsType(
        "aws:ebs/volume:Volume", create="ec2/CreateVolume", updates=("ModifyVolume", *TAGS), delete="DeleteVolume",
        id="vol-{hash}", members={"type": "VolumeType", "finalSnapshot": None},
        # tf, resourceEBSVolume: ForceNew, though ModifyVolume takes it; no ForceNew, and a change does nothing.
        replaces=("multiAttachEnabled",), updated=("volumeInitializationRate",),
        outputs={"arn": EC2 + ":volume/{id}", "createTime": "2026-01-01T00:00:00Z"},
    ),
    AwsType(
        "aws:autoscaling/tag:Tag", create="autoscaling/CreateOrUpdateTags", updates=("CreateOrUpdateTags",),
        id="{autoscalingGroupName},{short}",
        members={"autoscalingGroupName": "Tags.ResourceId", "tag": "Tags"},
        replaces=("autoscalingGroupName", "tag.key"),  # the identity, in one structure with the rest (tf, resourceGroupTag)
    ),
    AwsType(
        "aws:fis/experimentTemplate:ExperimentTemplate", create="fis/CreateExperimentTemplate",
        updates=("UpdateExperimentTemplate", "TagResource"), delete="DeleteExperimentTemplate", id="EXT{hash}",
        # Lists with names in them, where the API has maps by name.
        members={
            "actions.name": None, "actions.actionId": "CreateExperimentTemplate:actions", "actions.parameters": None,
            "actions.startAfters": None, "actions.target": None, "actions.description": None,
            "targets.name": None, "targets.resourceType": None, "targets.resourceTags": None, "targets.filters": None,
            "targets.selectionMode": None, "targets.resourceArns": None, "targets.parameters": None,
        },
        updated=("experimentOptions",),
        sets=("actions.startAfters", "targets.resourceArns", "targets.filters.values"),
    ),
)  # fmt: skip
