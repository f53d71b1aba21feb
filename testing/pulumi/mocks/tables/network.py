"""The network: VPC, subnets, gateways, routes, endpoints, security groups."""

from testing.pulumi.mocks.kind import AwsType
from testing.pulumi.mocks.tables import conditions

EC2 = "arn:aws:ec2:{region}:{account}"
TAGS = ("CreateTags",)
_RULE = {
    "ipProtocol": "IpPermissions.IpProtocol",
    "fromPort": "IpPermissions.FromPort",
    "toPort": "IpPermissions.ToPort",
    "securityGroupId": "GroupId",
    "cidrIpv4": "ModifySecurityGroupRules:SecurityGroupRules.SecurityGroupRule.CidrIpv4",
    "cidrIpv6": "ModifySecurityGroupRules:SecurityGroupRules.SecurityGroupRule.CidrIpv6",
    "prefixListId": "ModifySecurityGroupRules:SecurityGroupRules.SecurityGroupRule.PrefixListId",
    "referencedSecurityGroupId": "ModifySecurityGroupRules:SecurityGroupRules.SecurityGroupRule.ReferencedGroupId",
    "description": "ModifySecurityGroupRules:SecurityGroupRules.SecurityGroupRule.Description",
}
# tf, securityGroupRuleResource.Schema: no RequiresReplace but of the group. Another kind of source replaces: conditions.py.
_RULE_UPDATED = ("ipProtocol", "fromPort", "toPort")
_RULE_OUTPUTS = {"arn": EC2 + ":security-group-rule/{id}", "securityGroupRuleId": "{id}"}

ROWS = (
    AwsType(
        "aws:ec2/vpc:Vpc", create="ec2/CreateVpc", updates=("ModifyVpcAttribute", *TAGS), delete="DeleteVpc",
        id="vpc-{hash}",
        members={
            "assignGeneratedIpv6CidrBlock": "AmazonProvidedIpv6CidrBlock",
            "enableDnsHostnames": "ModifyVpcAttribute:EnableDnsHostnames",
            "enableDnsSupport": "ModifyVpcAttribute:EnableDnsSupport",
            "enableNetworkAddressUsageMetrics": "ModifyVpcAttribute:EnableNetworkAddressUsageMetrics",
        },
        # tf, resourceVPC, resourceVPCUpdate: IPv6 blocks are associated and disassociated in place.
        updated=("assignGeneratedIpv6CidrBlock", "ipv6CidrBlock", "ipv6IpamPoolId", "ipv6NetmaskLength",
                 "ipv6CidrBlockNetworkBorderGroup", "instanceTenancy"),
        sometimes=conditions.vpc,
        outputs={
            "arn": EC2 + ":vpc/{id}", "ownerId": "{account}", "mainRouteTableId": "rtb-{hash}",
            "defaultRouteTableId": "rtb-{hash}", "defaultSecurityGroupId": "sg-{hash}", "defaultNetworkAclId": "acl-{hash}",
        },
    ),
    AwsType(
        "aws:ec2/subnet:Subnet", create="ec2/CreateSubnet", updates=("ModifySubnetAttribute", *TAGS),
        delete="DeleteSubnet", id="subnet-{hash}",
        members={
            "assignIpv6AddressOnCreation": "ModifySubnetAttribute:AssignIpv6AddressOnCreation",
            "customerOwnedIpv4Pool": "ModifySubnetAttribute:CustomerOwnedIpv4Pool",
            "enableDns64": "ModifySubnetAttribute:EnableDns64",
            "enableLniAtDeviceIndex": "ModifySubnetAttribute:EnableLniAtDeviceIndex",
            "enableResourceNameDnsARecordOnLaunch": "ModifySubnetAttribute:EnableResourceNameDnsARecordOnLaunch",
            "enableResourceNameDnsAaaaRecordOnLaunch": "ModifySubnetAttribute:EnableResourceNameDnsAAAARecordOnLaunch",
            "mapCustomerOwnedIpOnLaunch": "ModifySubnetAttribute:MapCustomerOwnedIpOnLaunch",
            "mapPublicIpOnLaunch": "ModifySubnetAttribute:MapPublicIpOnLaunch",
            "privateDnsHostnameTypeOnLaunch": "ModifySubnetAttribute:PrivateDnsHostnameTypeOnLaunch",
        },
        updated=("ipv6CidrBlock",), sometimes=conditions.subnet,  # tf, resourceSubnetUpdate: associated in place
        outputs={"arn": EC2 + ":subnet/{id}", "ownerId": "{account}", "availabilityZoneId": "use1-az-{short}"},
    ),
    AwsType(
        "aws:ec2/internetGateway:InternetGateway", create="ec2/CreateInternetGateway", updates=TAGS,
        delete="DeleteInternetGateway", id="igw-{hash}", members={"vpcId": "AttachInternetGateway:VpcId"},
        outputs={"arn": EC2 + ":internet-gateway/{id}", "ownerId": "{account}"},
    ),
    AwsType(
        "aws:ec2/eip:Eip", create="ec2/AllocateAddress", updates=TAGS, delete="ReleaseAddress",
        id="eipalloc-{hash}",
        members={
            "associateWithPrivateIp": "AssociateAddress:PrivateIpAddress", "instance": "AssociateAddress:InstanceId",
            "networkInterface": "AssociateAddress:NetworkInterfaceId",
        },
        updated=("customerOwnedIpv4Pool",),  # tf, resourceEIP: no ForceNew; a change does nothing
        outputs={"allocationId": "{id}", "arn": EC2 + ":elastic-ip/{id}", "publicIp": "198.51.100.7"},
    ),
    AwsType(
        "aws:ec2/natGateway:NatGateway", create="ec2/CreateNatGateway", updates=TAGS, delete="DeleteNatGateway",
        id="nat-{hash}", members={"privateIp": "PrivateIpAddress"},
        # tf, resourceNATGateway: no ForceNew; secondary addresses are associated in place.
        updated=("secondaryAllocationIds", "secondaryPrivateIpAddresses", "secondaryPrivateIpAddressCount",
                 "availabilityZoneAddresses"),
        sometimes=conditions.nat_gateway,
        sets=("secondaryAllocationIds", "secondaryPrivateIpAddresses", "availabilityZoneAddresses.allocationIds"),
        outputs={"publicIp": "198.51.100.7", "networkInterfaceId": "eni-{hash}", "associationId": "eipassoc-{hash}"},
    ),
    AwsType(
        "aws:ec2/routeTable:RouteTable", create="ec2/CreateRouteTable",
        updates=("CreateRoute", "ReplaceRoute", *TAGS), delete="DeleteRouteTable", id="rtb-{hash}",
        members={"propagatingVgws": "EnableVgwRoutePropagation:GatewayId", "routes": None},
        updated=("routes", "propagatingVgws"),
        replaces=("vpcId",), sets=("propagatingVgws",),
        outputs={"arn": EC2 + ":route-table/{id}", "ownerId": "{account}"},
    ),
    AwsType(
        "aws:ec2/route:Route", create="ec2/CreateRoute", updates=("ReplaceRoute",), delete="DeleteRoute",
        id="r-{routeTableId}{short}", members={"egressOnlyGatewayId": "EgressOnlyInternetGatewayId"},
        outputs={"origin": "CreateRoute", "state": "active", "instanceId": "", "instanceOwnerId": ""},
    ),
    AwsType(
        "aws:ec2/routeTableAssociation:RouteTableAssociation", create="ec2/AssociateRouteTable",
        updates=("ReplaceRouteTableAssociation",), delete="DisassociateRouteTable", id="rtbassoc-{hash}",
    ),
    AwsType(
        "aws:ec2/vpcEndpoint:VpcEndpoint", create="ec2/CreateVpcEndpoint", updates=("ModifyVpcEndpoint", *TAGS),
        delete="DeleteVpcEndpoints", id="vpce-{hash}",
        members={"autoAccept": None, "policy": "PolicyDocument"},
        updated=("routeTableIds", "subnetIds", "securityGroupIds"),  # ModifyVpcEndpoint has Add... and Remove... of them
        # tf, resourceVPCEndpoint: ForceNew, though ModifyVpcEndpoint takes them.
        replaces=("dnsOptions.privateDnsPreference", "dnsOptions.privateDnsSpecifiedDomains"),
        sometimes=conditions.endpoint,
        sets=("routeTableIds", "subnetIds", "securityGroupIds", "dnsOptions.privateDnsSpecifiedDomains"),
        outputs={"arn": EC2 + ":vpc-endpoint/{id}", "ownerId": "{account}", "state": "available", "prefixListId": "pl-{short}"},
    ),
    AwsType(
        "aws:ec2/vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation", create="ec2/ModifyVpcEndpoint",
        id="a-{vpcEndpointId}{short}", members={"routeTableId": "AddRouteTableIds"},
    ),
    AwsType(
        "aws:ec2/securityGroup:SecurityGroup", create="ec2/CreateSecurityGroup", updates=TAGS,
        delete="DeleteSecurityGroup", autoname="name", id="sg-{hash}",
        members={
            "name": "GroupName", "namePrefix": "GroupName", "revokeRulesOnDelete": None,
            "ingress": "AuthorizeSecurityGroupIngress:IpPermissions", "egress": "AuthorizeSecurityGroupEgress:IpPermissions",
            **{
                f"{way}.{name}": None
                for way in ("ingress", "egress")
                for name in ("cidrBlocks", "description", "ipv6CidrBlocks", "securityGroups", "self")
            },
            "ingress.protocol": "IpProtocol", "egress.protocol": "IpProtocol",
        },
        outputs={"arn": EC2 + ":security-group/{id}", "ownerId": "{account}"},
    ),
    # Adopted, not made: what it says is put onto the group that the VPC came with.
    AwsType(
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", create="ec2/CreateSecurityGroup", updates=TAGS, id="sg-{hash}",
        members={"ingress": None, "egress": None, "revokeRulesOnDelete": None},
        outputs={"arn": EC2 + ":security-group/{id}", "ownerId": "{account}", "name": "default", "description": "default group"},
    ),
    AwsType(
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", create="ec2/AuthorizeSecurityGroupIngress",
        updates=("ModifySecurityGroupRules", *TAGS), members=_RULE, replaces=("securityGroupId",), updated=_RULE_UPDATED,
        sometimes=conditions.group_rule, id="sgr-{hash}", outputs=_RULE_OUTPUTS,
    ),
    AwsType(
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", create="ec2/AuthorizeSecurityGroupEgress",
        updates=("ModifySecurityGroupRules", *TAGS), members=_RULE, replaces=("securityGroupId",), updated=_RULE_UPDATED,
        sometimes=conditions.group_rule, id="sgr-{hash}", outputs=_RULE_OUTPUTS,
    ),
    # Made by pulumi_eks.Cluster unless it is told to skip its security groups.
    AwsType(
        "aws:ec2/securityGroupRule:SecurityGroupRule", create="ec2/AuthorizeSecurityGroupIngress", id="sgrule-{short}",
        members={
            "protocol": "IpPermissions.IpProtocol", "fromPort": "IpPermissions.FromPort", "toPort": "IpPermissions.ToPort",
            "cidrBlocks": None, "ipv6CidrBlocks": None, "prefixListIds": None, "self": None, "type": None,
            "sourceSecurityGroupId": "IpPermissions.UserIdGroupPairs.GroupId", "securityGroupId": "GroupId",
            "description": "IpPermissions.IpRanges.Description",
        },
        replaces=("cidrBlocks", "ipv6CidrBlocks", "prefixListIds", "self", "type"),
        updated=("description",),
        delete_first=True,  # pulumi-aws
        outputs={"securityGroupRuleId": "sgr-{hash}"},
    ),
)  # fmt: skip
